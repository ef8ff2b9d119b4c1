//! Somebody else's Varlink client: the package `varlink` from PyPI.
//!
//! It must never be a copy of ours: what it understands is what others understand.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context as _;

use crate::command::Program;
use crate::need;
use crate::stage::Stage;

/// The version, which doesn't change under the tests.
const PACKAGE: &str = "varlink==31.0.0";
/// How long an index may take; it tells a hang from a wait.
const PATIENCE: Duration = Duration::from_secs(300);

/// The package as a file.
#[derive(Debug)]
struct Wheel {
    name: String,
    bytes: Vec<u8>,
}

/// Why the package can't be had; asked for once by each test program. It's fetched before a test
/// has a stage of its own: there, `/run` may be without what finds names on the network.
pub(crate) fn missing() -> Option<String> {
    wheel().err()
}

fn wheel() -> Result<&'static Wheel, String> {
    static WHEEL: OnceLock<Result<Wheel, String>> = OnceLock::new();
    WHEEL
        .get_or_init(|| fetch().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(Clone::clone)
}

fn fetch() -> anyhow::Result<Wheel> {
    let directory = tempfile::tempdir()?;
    let place = |name: &str| directory.path().join(name);
    let program = |program| {
        let program: Program = program;
        program.env("PATH", need::PATH).deadline(PATIENCE)
    };
    let make = Program::new(need::find("python3").context("python3 is missing")?);
    let make = program(make.args(["-m", "venv"]).arg(place("venv")));
    make.output().context("no virtual environment can be made (Debian's package python3-venv)")?;
    let pip = Program::new(place("venv/bin/pip")).args(["download", "--quiet", "--no-deps"]);
    let pip = pip.args(["--only-binary", ":all:", "--dest"]).arg(place("wheel")).arg(PACKAGE);
    program(pip).output().with_context(|| format!("pip can't get {PACKAGE}"))?;
    let file = fs::read_dir(place("wheel"))?.next().context("pip got nothing")??;
    let name = file.file_name().to_string_lossy().into_owned();
    Ok(Wheel { name, bytes: fs::read(file.path())? })
}

/// Makes a virtual environment with the package in it; the directory of its programs.
///
/// # Errors
///
/// Where that fails.
pub fn install(stage: &Stage) -> anyhow::Result<PathBuf> {
    let wheel = wheel().map_err(anyhow::Error::msg)?;
    let file = stage.path("work").join(&wheel.name);
    fs::write(&file, &wheel.bytes)?;
    let script = r#"
        python3 -m venv --without-pip "$1"
        place=$("$1/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        "$1/bin/python3" -m zipfile -e "$2" "$place"
    "#;
    let place = stage.path("work/venv");
    let program = Program::bash(script).arg("bash").arg(&place).arg(&file);
    stage.program(program).output().context("a virtual environment")?;
    Ok(place.join("bin"))
}
