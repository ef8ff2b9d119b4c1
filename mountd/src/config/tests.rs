//! Flags win over variables, these over the file, this over what suits the host.

use super::*;

const ROOT: Host = Host { privileged: true, uid: 0, gid: 0 };
const USER: Host = Host { privileged: false, uid: 7, gid: 7 };

fn settings(
    host: Host,
    variables: &[(&str, &str)],
    file: &str,
    flags: Flags,
) -> Result<Settings, Fault> {
    let variable = |name: &str| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    };
    let file = Some((PathBuf::from("/etc/c.toml"), file.to_owned()));
    let own = |path: &Path| path == "/run/user/7";
    resolve(&Surroundings { host, variable: &variable, own: &own, file }, flags)
}

#[test]
fn defaults_suit_the_host() {
    let root = settings(ROOT, &[("XDG_RUNTIME_DIR", "/run/user/0")], "", Flags::default());
    let root = root.expect("defaults");
    assert_eq!(root.mountpoint, Path::new("/tmp/mecatl"));
    assert_eq!(root.socket, Path::new("/run/holdfast/control"));
    assert_eq!(root.store, Store::Tmpfs);
    assert!(root.own_socket_directory);

    let user = settings(USER, &[], "", Flags::default()).expect("defaults");
    assert_eq!(user.mountpoint, Path::new("/tmp/mecatl-7"));
    assert_eq!(user.socket, Path::new("/tmp/holdfast-7/control"));

    let user = settings(USER, &[("XDG_RUNTIME_DIR", "/run/user/7")], "", Flags::default());
    assert_eq!(user.expect("defaults").socket, Path::new("/run/user/7/holdfast/control"));
    // Left from another user, or from a login that is over.
    let user = settings(USER, &[("XDG_RUNTIME_DIR", "/run/user/8")], "", Flags::default());
    assert_eq!(user.expect("defaults").socket, Path::new("/tmp/holdfast-7/control"));
}

#[test]
fn flags_over_variables_over_file() {
    let file = "mountpoint = '/f/m'\nsocket = '/f/s'\nstore = 'dir:/f/d'\nidle_exit = '3m'\n";
    let variables = [("HOLDFAST_MOUNTPOINT", "/v/m"), ("HOLDFAST_STORE", "tmpfs")];
    let flags = Flags { mountpoint: Some("/g/m".into()), ..Flags::default() };

    let all = settings(USER, &variables, file, flags).expect("valid");
    assert_eq!(all.mountpoint, Path::new("/g/m"));
    assert_eq!(all.store, Store::Tmpfs);
    assert_eq!(all.socket, Path::new("/f/s"));
    assert_eq!(all.idle_exit, Some(Duration::from_secs(180)));
    assert!(!all.own_socket_directory);

    let two = settings(USER, &variables, file, Flags::default()).expect("valid");
    assert_eq!(two.mountpoint, Path::new("/v/m"));
}

#[test]
fn a_total_is_a_size_and_no_directory_has_one() {
    let of = |variables: &[(&str, &str)], file: &str, flag: Option<u64>| {
        let flags = Flags { total: flag, ..Flags::default() };
        settings(USER, variables, file, flags).map(|settings| settings.total)
    };
    let file = "total = '2G'";
    assert_eq!(of(&[], "", None), Ok(None));
    assert_eq!(of(&[], file, None), Ok(Some(2 << 30)));
    assert_eq!(of(&[("HOLDFAST_TOTAL", "1M")], file, None), Ok(Some(1 << 20)));
    assert_eq!(of(&[("HOLDFAST_TOTAL", "1M")], file, Some(7)), Ok(Some(7)));
    for (variables, file) in
        [([("HOLDFAST_TOTAL", "much")], ""), ([("HOLDFAST_STORE", "dir:/d")], file)]
    {
        assert_eq!(
            of(&variables, file, None).map_err(|fault| fault.code()),
            Err("settings-invalid")
        );
    }
}

#[test]
fn a_bad_value_is_named_by_its_place() {
    type Variables = [(&'static str, &'static str)];
    let cases: &[(&Variables, &str, &str)] = &[
        (&[], "\nmountpiont = '/a'\n", "/etc/c.toml:2"),
        (&[], "store = 'tmpfs'\n\n# x\nidle_exit = 'soon'\n", "/etc/c.toml:4"),
        (&[], "store = 'disk'\n", "/etc/c.toml:1"),
        (&[], "mountpoint = 'relative'\n", "/etc/c.toml:1"),
        (&[], "context = 'a'\nmountpoint = 4\n", "/etc/c.toml:2"),
        (&[], "context = \n", "/etc/c.toml:1"),
        (&[("HOLDFAST_IDLE_EXIT", "soon")], "", "HOLDFAST_IDLE_EXIT"),
        (&[("HOLDFAST_STORE", "dir:x")], "", "HOLDFAST_STORE"),
        (&[("HOLDFAST_SOCKET", "x")], "", "HOLDFAST_SOCKET"),
        (&[("HOLDFAST_MOUNTPOINT", "/")], "", "HOLDFAST_MOUNTPOINT"),
    ];
    for (variables, file, expected) in cases {
        let refused = settings(USER, variables, file, Flags::default());
        let Err(Fault::SettingsInvalid { place, reason }) = refused else {
            panic!("{file:?} {variables:?} gave {refused:?}");
        };
        assert_eq!(place, *expected, "{reason}");
        assert!(!reason.is_empty());
    }
}

#[test]
fn an_empty_variable_is_none() {
    let set = settings(USER, &[("HOLDFAST_SOCKET", "")], "", Flags::default()).expect("valid");
    assert_eq!(set.socket, Path::new("/tmp/holdfast-7/control"));
}

#[test]
fn sizes_are_powers_of_1024() {
    for (text, bytes) in
        [("1", 1), ("4096b", 4096), ("64k", 65536), ("1M", 1 << 20), ("2GiB", 2 << 30)]
    {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in ["", "M", "0", "-1", "1 M", "1MB", "1.5G", "99999999999999999999", "16777216T"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

#[test]
fn durations_have_units() {
    assert_eq!(parse_duration("10m"), Ok(Duration::from_secs(600)));
    assert!(parse_duration("10").is_err());
}
