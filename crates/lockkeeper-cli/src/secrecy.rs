//! Keeps a store's password from other programs of the same user, above all from the command of `run`.

/// If one of these environment variables, or an argument, tells this process a password, makes its environment and memory
/// the superuser's alone, as far as this system can.
///
/// It leaves no core dump then, and no debugger of an ordinary user can be attached to it.
pub fn keep(variables: &[&str]) {
    #[cfg(target_os = "linux")]
    if is_told_a_password(variables) {
        // Programs that it starts are as others again.
        let _ = nix::sys::prctl::set_dumpable(false);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = variables;
}

#[cfg(target_os = "linux")]
fn is_told_a_password(variables: &[&str]) -> bool {
    let told = variables.iter().filter_map(std::env::var_os);
    // An argument may name a file with a password, which we then know.
    told.chain(std::env::args_os()).any(|text| {
        let text = text.to_string_lossy();
        // Without a look at the rest: a URL with a slip of the pen has its password as well.
        text.contains('@') || text.contains("password_file=")
    })
}
