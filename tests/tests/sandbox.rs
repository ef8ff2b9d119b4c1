//! A lease inside of mount and user namespaces that somebody else makes.

use anyhow::ensure;
use holdfast_tests::daemon::while_served;
use holdfast_tests::need::Need;
use holdfast_tests::stage::{as_each_user, as_root};
use holdfast_tests::user::User;

#[test]
fn a_command_has_its_lease_as_tmp() {
    as_each_user(&[Need::Fuse], |stage| {
        while_served(stage, |_| {
            let script = r#"
                [[ $TMPDIR == /tmp && $TMP == /tmp && $TEMP == /tmp ]]
                [[ -z $(ls -A /tmp) && $(stat -c %u /tmp) == "$(id -u)" ]]
                echo inside > /tmp/file && cat /tmp/file && id -u
                [[ $(stat -c %u /tmp/file) == "$(id -u)" ]]
            "#;
            let run = ["run", "--bind-tmp", "--", "bash", "-euc", script];
            let printed = stage.holdfast().args(run).output()?;
            let own = stage.user.uid;
            ensure!(printed == format!("inside\n{own}\n"), "{printed:?}");
            ensure!(!std::path::Path::new("/tmp/file").exists(), "it shows outside");
            Ok(())
        })
    });
}

/// In a lease; `$TMPDIR` becomes the sandbox's `/tmp`.
const SANDBOX: &str = r#"
    sandbox() {
        bwrap --ro-bind / / --dev /dev --proc /proc --bind "$TMPDIR" /tmp --chdir /tmp "$@"
    }
    echo "from outside" > "$TMPDIR/outside"
    sandbox bash -euc '
        cat /tmp/outside
        echo "from inside" > /tmp/inside
        ! touch /usr/touched 2>/dev/null
        mkfifo fifo && (echo through > fifo &) && cat fifo
        file=$(TMPDIR=/tmp mktemp) && rm "$file"
    '
    cat "$TMPDIR/inside"
    sandbox --unshare-pid --unshare-ipc bash -euc 'cat inside; rm inside outside fifo'
    [[ -z $(ls -A "$TMPDIR") ]]
    # A bind keeps working while the sandbox lives, whatever becomes of the names outside.
    mkdir "$TMPDIR/bound"
    coproc held { bwrap --ro-bind / / --dev /dev --bind "$TMPDIR/bound" /mnt bash -c \
        'echo ready; read -r _; echo alive > /mnt/file && cat /mnt/file'; }
    read -r ready <&"${held[0]}"
    mv "$TMPDIR/bound" "$TMPDIR/moved"
    echo go >&"${held[1]}"
    cat <&"${held[0]}"
    [[ $(cat "$TMPDIR/moved/file") == alive ]]
"#;

#[test]
fn a_sandbox_has_the_lease_as_tmp() {
    as_each_user(&[Need::Fuse, Need::Program("bwrap")], |stage| {
        while_served(stage, |_| {
            let printed = stage.run(SANDBOX).output()?;
            let expected = "from outside\nthrough\nfrom inside\nfrom inside\nalive\n";
            ensure!(printed == expected, "{printed:?}");
            Ok(())
        })
    });
}

#[test]
fn a_users_sandbox_works_with_the_systems_daemon() {
    as_root(&[Need::Fuse, Need::Program("bwrap")], |stage| {
        while_served(stage, |_| {
            let printed = stage.for_user(User::ordinary()).run(SANDBOX).output()?;
            ensure!(printed.ends_with("alive\n"), "{printed:?}");
            Ok(())
        })
    });
}
