//! A lease inside of mount and user namespaces that somebody else makes.

use anyhow::ensure;
use holdfast_tests::daemon::while_served;
use holdfast_tests::need::Need;
use holdfast_tests::stage::{as_each_user, as_root};
use holdfast_tests::status;
use holdfast_tests::user::User;

/// A generous time for what nobody uses to go.
const GOES: std::time::Duration = std::time::Duration::from_secs(20);

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

/// A sandbox whose `/tmp` is the lease, which then ends; `$NAMESPACES` says what else is its own.
const RETIRED: &str = r#"
    exec 3<&0
    setsid bwrap $NAMESPACES --ro-bind / / --dev /dev --proc /proc --bind "$TMPDIR" /tmp \
        --chdir / bash -euc '
            echo before > /tmp/file; echo inside; read -r _
            [[ $(cat /tmp/file) == before ]]; echo after >> /tmp/file; mkdir /tmp/directory
            file=$(TMPDIR=/tmp mktemp) && rm "$file"
            (cd /tmp && ls); read -r _
        ' <&3 &
"#;

#[test]
fn a_bind_of_a_retired_generation_is_valid_until_it_is_let_go() {
    as_each_user(&[Need::Fuse, Need::Program("bwrap"), Need::Program("setsid")], |stage| {
        while_served(stage, |_| {
            // Without being told, bubblewrap makes a user namespace where it lacks privilege.
            for namespaces in ["", "--unshare-user", "--unshare-user --unshare-pid"] {
                stage.holdfast().args(["session", "open", "main"]).output()?;
                let mut running =
                    stage.run_in("main", RETIRED).env("NAMESPACES", namespaces).start()?;
                ensure!(running.line()? == "inside", "{namespaces}");
                stage.holdfast().args(["session", "rotate", "main"]).output()?;
                status::becomes(stage, &[("leases", 0), ("retired", 1)], GOES)?;
                // The next command has another directory, and that one goes while this one stays.
                ensure!(stage.run_in("main", r#"ls "$TMPDIR""#).output()?.is_empty());
                stage.holdfast().args(["session", "rotate", "main"]).output()?;
                status::becomes(stage, &[("leases", 0), ("generations", 1)], GOES)?;
                running.say("go on")?;
                ensure!([running.line()?, running.line()?] == ["directory", "file"]);
                running.say("let go")?;
                running.finish()?.success()?;
                status::becomes(stage, &[("generations", 0)], GOES)?;
                stage.holdfast().args(["session", "close", "main"]).output()?;
            }
            Ok(())
        })
    });
}

#[test]
fn a_sandbox_with_a_user_namespace_of_its_own_has_the_lease_as_tmp() {
    as_each_user(&[Need::Fuse, Need::Program("bwrap")], |stage| {
        while_served(stage, |_| {
            let script = SANDBOX.replace("bwrap --ro-bind", "bwrap --unshare-user --ro-bind");
            let printed = stage.run(&script).output()?;
            ensure!(printed.ends_with("alive\n"), "{printed:?}");
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
