//! What `run` is called where others look at the lock.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use lockkeeper::store::Reach;
use lockkeeper::{Error, Label};

/// What `--label` says; nothing is no label.
#[derive(Clone, Debug)]
pub struct LabelArg(Option<Label>);

pub fn parse(text: &str) -> Result<LabelArg, Error> {
    let label = match text {
        "" => None,
        text => Some(Label::new(text)?),
    };
    Ok(LabelArg(label))
}

/// The label of a run: what `--label` says, else its command. A store that other machines use shows only the program:
/// arguments may hold secrets, which so far only this machine's process list shows.
pub fn of_run(
    said: Option<&LabelArg>,
    command: &[OsString],
    shell: bool,
    reach: Reach,
) -> Option<Label> {
    if let Some(LabelArg(label)) = said {
        return label.clone();
    }
    let shown = match reach {
        Reach::Process | Reach::Machine => command.join(OsStr::new(" ")),
        // The first word of a line of shell may be a variable that is set.
        _ if shell => "sh".into(),
        _ => Path::new(command.first()?).file_name()?.to_owned(),
    };
    Label::shortened(&shown.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(said: Option<&str>, command: &[&str], shell: bool, reach: Reach) -> Option<String> {
        let said = said.map(|text| parse(text).expect("a label"));
        let command: Vec<OsString> = command.iter().map(Into::into).collect();
        of_run(said.as_ref(), &command, shell, reach).map(|label| label.to_string())
    }

    #[test]
    fn a_run_is_called_what_it_runs_unless_it_says_otherwise() {
        let command = ["/opt/dump", "--password=canary", "two\nlines"];
        for reach in [Reach::Process, Reach::Machine, Reach::Network] {
            let said = label(Some("nightly"), &command, false, reach);
            assert_eq!(said.as_deref(), Some("nightly"));
            assert_eq!(label(Some(""), &command, false, reach), None);
        }
        let whole = label(None, &command, false, Reach::Machine);
        assert_eq!(
            whole.as_deref(),
            Some("/opt/dump --password=canary two lines")
        );
        assert!(parse("two\nlines").is_err());
    }

    #[test]
    fn other_machines_see_no_argument() {
        let command = ["/opt/dump", "--password=canary"];
        let seen = label(None, &command, false, Reach::Network);
        assert_eq!(seen.as_deref(), Some("dump"));
        let command = ["PASSWORD=canary dump"];
        let seen = label(None, &command, true, Reach::Network);
        assert_eq!(seen.as_deref(), Some("sh"));
    }

    #[test]
    fn a_long_command_is_cut() {
        let long = "x".repeat(1_000);
        let label = label(None, &["echo", &long], false, Reach::Machine).expect("a label");
        assert!(
            label.starts_with("echo x") && label.ends_with('…'),
            "{label}"
        );
    }
}
