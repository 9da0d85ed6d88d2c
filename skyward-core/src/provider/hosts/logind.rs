//! Hosts whose systemd-logind ends a user's processes with the session that started them.

use std::collections::BTreeMap;

/// Whether processes of this user end with their session, according to the output of `logind.sh`:
/// `user NAME`, and `logind FILE:SETTING=VALUE` for each setting in each file.
///
/// The order is systemd's: the main file first, then the drop-in files by their names, regardless
/// of their folders. Of several files of one name, only the one in the first folder counts.
pub(super) fn ends_processes(text: &str) -> bool {
    let lines = |name: &'static str| text.lines().filter_map(move |line| line.strip_prefix(name));
    let Some(user) = lines("skyward-user ").next() else { return false };
    let mut files: BTreeMap<(bool, &str), File<'_>> = BTreeMap::new();
    for line in lines("skyward-logind ") {
        let Some((file, (name, value))) =
            line.split_once(".conf:").and_then(|(file, setting)| Some((file, setting.split_once('=')?)))
        else {
            continue;
        };
        let (folder, stem) = file.rsplit_once('/').unwrap_or(("", file));
        let rank = FOLDERS.iter().position(|prefix| folder.contains(prefix)).unwrap_or(FOLDERS.len());
        let new = File { rank, folder, settings: Vec::new() };
        let entry = files.entry((folder.ends_with(".d"), stem)).or_insert_with(|| new.clone());
        if rank < entry.rank {
            *entry = new;
        }
        if entry.folder == folder {
            entry.settings.push((name.trim(), value.trim()));
        }
    }
    let (mut ends, mut excluded, mut only) = (false, vec!["root"], Vec::new());
    for (name, value) in files.into_values().flat_map(|file| file.settings) {
        let users = || value.split_whitespace().collect::<Vec<_>>();
        match name {
            "KillUserProcesses" => {
                ends = ["1", "yes", "y", "true", "t", "on"].iter().any(|word| value.eq_ignore_ascii_case(word));
            }
            "KillExcludeUsers" => excluded = users(),
            "KillOnlyUsers" => only = users(),
            _ => {}
        }
    }
    ends && !excluded.contains(&user) && (only.is_empty() || only.contains(&user))
}

/// A file of a name, in the first folder that has one.
#[derive(Clone)]
struct File<'a> {
    rank: usize,
    folder: &'a str,
    settings: Vec<(&'a str, &'a str)>,
}

/// The hint for such a host.
pub(super) const HINT: &str = "systemd-logind on that host ends a user's processes with the session that started them (`KillUserProcesses=yes`), so a node ends when its connection is cut: \
     set `KillUserProcesses=no`, or add this user to `KillExcludeUsers=`, in /etc/systemd/logind.conf, and restart systemd-logind; `loginctl enable-linger` alone keeps only what \
     the user's service manager runs";

/// The folders that systemd reads, the first one with a file taking precedence.
const FOLDERS: [&str; 3] = ["/etc/systemd/", "/run/systemd/", "/usr/local/lib/systemd/"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_counts_for_the_users_it_names() {
        let etc = "skyward-logind /etc/systemd/logind.conf:";
        let drop = |folder: &str, name: &str| format!("skyward-logind {folder}/systemd/logind.conf.d/{name}.conf:");
        let (first, last) = (drop("/etc", "10-a"), drop("/usr/lib", "90-z"));
        let cases = [
            (String::new(), false),
            (format!("{etc}KillUserProcesses=yes"), true),
            (format!("{etc} KillUserProcesses = On "), true),
            (format!("{etc}KillUserProcesses=no"), false),
            (format!("{etc}KillUserProcesses=yes\n{first}KillUserProcesses=no"), false),
            (format!("{last}KillUserProcesses=yes\n{first}KillUserProcesses=no\n{etc}KillUserProcesses=no"), true),
            (format!("{etc}KillUserProcesses=yes\n{etc}KillExcludeUsers=root alice"), false),
            (format!("{etc}KillUserProcesses=yes\n{etc}KillOnlyUsers=bob carol"), false),
            (format!("{etc}KillUserProcesses=yes\n{etc}KillOnlyUsers=bob alice"), true),
            // A file masks those of its name in later folders.
            (format!("{}KillUserProcesses=yes\n{first}KillUserProcesses=no", drop("/usr/lib", "10-a")), false),
        ];
        for (settings, ends) in cases {
            assert_eq!(
                ends_processes(&format!("skyward-cpus 2\nskyward-user alice\n{settings}\n")),
                ends,
                "{settings}"
            );
        }
        assert!(!ends_processes(&format!("{etc}KillUserProcesses=yes")), "it belongs to no session");
        assert!(!ends_processes(&format!("skyward-user root\n{etc}KillUserProcesses=yes")), "root is excluded");
    }

    #[test]
    fn the_files_of_a_host_are_reported_within_a_session_only() {
        let root = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=yes\nNAutoVTs=6\nKillUserProcesses=no\n");
        write("usr/lib/systemd/logind.conf", "[Login]\nKillOnlyUsers=nobody\n");
        write("usr/lib/systemd/logind.conf.d/50-lab.conf", "[Login]\nKillUserProcesses=yes\n");
        write("session", "0::/user.slice/user-1000.slice/session-7.scope\n");
        write("service", "0::/system.slice/ssh.service\n");
        let told = |groups: &str| {
            let script = format!("{SCRIPT}\nLOGNAME=alice\ntell_logind \"$1\" \"$1/{groups}\"");
            let output = std::process::Command::new("sh").args(["-c", &script, "sh"]).arg(&root).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let (session, service) = (told("session"), told("service"));
        std::fs::remove_dir_all(&root).unwrap();
        assert!(ends_processes(&session), "{session}");
        assert_eq!(session.lines().count(), 3, "{session}");
        assert_eq!(service, "");
    }

    const SCRIPT: &str = include_str!("scripts/logind.sh");
}
