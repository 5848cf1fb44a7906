//! The description of the routes for programs (OpenAPI 3.1).

/// Where it is served.
pub(super) const PATH: &str = "/openapi.json";

/// The description.
pub(super) fn description() -> serde_json::Value {
    serde_json::from_str(include_str!("openapi.json")).expect("a test reads it")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::shop::ROUTES;

    #[test]
    fn it_describes_exactly_the_routes_there_are() {
        let description = super::description();
        let paths = description["paths"].as_object().expect("paths");
        let described: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().expect("methods");
                methods
                    .keys()
                    .map(|method| (method.to_uppercase(), path.clone()))
            })
            .collect();
        let others = ["/health", "/stats", super::PATH].map(|path| ("GET", path));
        let routes = ROUTES.iter().map(|route| (route.method, route.path));
        let there_are: BTreeSet<_> = routes
            .chain(others)
            .map(|(method, path)| (method.to_owned(), path.to_owned()))
            .collect();
        assert_eq!(described, there_are);
    }
}
