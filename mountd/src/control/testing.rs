//! A control socket to talk to: a real namespace on ground that keeps nothing, behind a real
//! socket.
//!
//! It must never need a mount.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use holdfast_fs::clock::Monotonic;
use holdfast_fs::namespace::{
    Found, Gone, Ground, GroundError, KernelDraw, Namespace, Owner, Remains, Room, Stuck,
    Surroundings, Unclaimed,
};
use holdfast_fs::node::GenerationKey;
use holdfast_fs::registry::{Bounds, LeaseId, Served, SessionId, Usage};
use holdfast_fs::tempfs::Witness;
use rustix::process::{getegid, geteuid};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};

use super::{
    Facts, Happening, Lines, Refusals, Standing, State, Stop, Writing, refusals, serve, watching,
};
use crate::channel::Why;
use crate::fault::Fault;

/// A test that waits longer than this hangs.
pub(super) const HANG: Duration = Duration::from_secs(30);

/// Ground on which everything can be made and nothing is kept.
#[derive(Default)]
struct Thin(AtomicU64);

impl Thin {
    fn number(&self) -> Result<u64, GroundError> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed) + 2)
    }
}

impl Ground for Thin {
    fn holds_limits(&self) -> bool {
        true
    }

    fn grain(&self) -> u64 {
        1
    }

    fn raise_session(&self, _: &SessionId, _: Owner) -> Result<u64, GroundError> {
        self.number()
    }

    fn raise_generation(
        &self,
        _: &SessionId,
        _: u32,
        _: GenerationKey,
        room: Room,
        _: Owner,
    ) -> Result<u64, GroundError> {
        // So that a test has an error of the ground's.
        if room.size == Some(1) { Err(GroundError::Full) } else { self.number() }
    }

    fn raise_lease(&self, _: GenerationKey, _: &LeaseId, _: Owner) -> Result<u64, GroundError> {
        self.number()
    }

    fn take_back_lease(&self, _: GenerationKey, _: &LeaseId) {}

    fn restore_session(&self, _: &SessionId, _: Owner, _: u64) -> Result<(), GroundError> {
        Ok(())
    }

    fn restore_generation(
        &self,
        _: &SessionId,
        _: u32,
        _: GenerationKey,
        _: u64,
    ) -> Result<Found, GroundError> {
        Ok(Found::Whole)
    }

    fn restore_lease(&self, _: GenerationKey, _: &LeaseId, _: u64) -> Result<Found, GroundError> {
        Ok(Found::Whole)
    }

    fn end_lease(&self, _: GenerationKey, _: &LeaseId) -> Option<u64> {
        Some(1)
    }

    fn drain(&self, _: GenerationKey, gone: Gone, _: Stuck) {
        thread::spawn(gone);
    }

    fn lower_session(&self, _: &SessionId) {}

    fn resize(&self, _: GenerationKey, _: Room) -> Result<(), GroundError> {
        Ok(())
    }

    fn used(&self, _: GenerationKey) -> Result<Usage, GroundError> {
        Ok(Usage { bytes: 4096, inodes: 2 })
    }

    fn is_written(&self, _: GenerationKey, _: bool) -> bool {
        false
    }

    fn sweep_lease(
        &self,
        _: GenerationKey,
        _: &LeaseId,
        _: u64,
        sweep: bool,
    ) -> Result<Remains, GroundError> {
        let usage = Usage { bytes: 0, inodes: 1 };
        Ok(if sweep { Remains::Swept(usage) } else { Remains::Unused(usage) })
    }

    fn unclaimed(
        &self,
        _: GenerationKey,
        _: &dyn Fn(GenerationKey) -> bool,
    ) -> Result<Vec<Unclaimed>, GroundError> {
        Ok(Vec::new())
    }

    fn sweep_generation(&self, _: GenerationKey) -> Result<(), GroundError> {
        Ok(())
    }
}

/// A daemon that serves nothing but its control socket.
pub(super) struct Desk {
    directory: TempDir,
    pub(super) stop: Stop,
    /// Takes note of what it is told.
    pub(super) happens: UnboundedSender<Happening>,
    /// Is told what a filesystem refuses.
    pub(super) witness: Arc<dyn Witness>,
    /// What the keeper says of the mount when it is asked.
    pub(super) fault: Arc<Mutex<Option<Fault>>>,
    serving: JoinHandle<Result<Why, Fault>>,
}

impl Desk {
    pub(super) fn open() -> Self {
        Self::with_idle_exit(None)
    }

    pub(super) fn with_idle_exit(idle_exit: Option<Duration>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("control");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let stop = Stop::new();
        let asked = stop.clone();
        let facts = Facts {
            mountpoint: PathBuf::from("/mount"),
            socket,
            store: "tmpfs".to_owned(),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            many_users: false,
            idle_exit,
            bounds: Bounds::default(),
            lost_promises: vec![("other-users".to_owned(), "it is a test".to_owned())],
        };
        let (witness, refusals) = refusals();
        let (happens, happenings) = unbounded_channel();
        let fault = Arc::default();
        let given = Surprises { refusals, happenings, fault: Arc::clone(&fault) };
        let serving = thread::spawn(move || run(listener, facts, asked, given));
        Self { directory, stop, happens, witness, fault, serving }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("control")
    }

    pub(super) fn client(&self) -> Raw {
        Raw::connect(&self.socket())
    }

    /// Waits for the end.
    pub(super) fn end(self) -> Why {
        self.serving.join().expect("it didn't panic").expect("it ended well")
    }

    /// Ends it, whatever clients do.
    pub(super) fn close(self) {
        self.stop.ask(Why::Asked);
        assert_eq!(self.end(), Why::Asked);
    }
}

/// What comes from elsewhere.
struct Surprises {
    refusals: Refusals,
    happenings: UnboundedReceiver<Happening>,
    fault: Arc<Mutex<Option<Fault>>>,
}

fn run(
    listener: UnixListener,
    facts: Facts,
    stop: Stop,
    Surprises { refusals, mut happenings, fault }: Surprises,
) -> Result<Why, Fault> {
    let (observer, watched) = watching();
    let namespace = Namespace::new(Surroundings {
        ground: Arc::new(Thin::default()),
        ledger: None,
        observer,
        lineage: Arc::new(Lines),
        clock: Arc::new(Monotonic),
        draw: Box::new(KernelDraw),
        bounds: facts.bounds,
        total: Some(1 << 30),
        first_key: GenerationKey::new(1).expect("a key"),
    });
    let (ask, mut asked) = unbounded_channel();
    let standing = Standing::new(move |number| ask.send(number).expect("somebody answers"));
    let state = Rc::new(State::new(namespace, facts, Arc::new(Monotonic), stop, standing)?);
    state.serve(Served { epoch: 1, device: 77 });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), async {
        let events = state.events.clone();
        spawn_local(async move {
            while let Some(happening) = happenings.recv().await {
                events.note(happening);
            }
        });
        let told = Rc::clone(&state);
        spawn_local(async move {
            while let Some(number) = asked.recv().await {
                let fault = fault.lock().expect("no panic").as_ref().map(Fault::report);
                told.standing().told(number, fault);
            }
        });
        let (listeners, listened) = unbounded_channel();
        listeners.send(listener).expect("received below");
        let writing = Writing::new(Arc::default(), || false);
        serve(listened, state, watched, refusals, writing).await
    })
}

/// A client that may do anything.
pub(super) struct Raw(UnixStream);

impl Raw {
    pub(super) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("a connection");
        stream.set_read_timeout(Some(HANG)).expect("a limit");
        Self(stream)
    }

    /// Sends bytes; the other end may have left.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        match self.0.write_all(bytes) {
            Ok(()) => {}
            Err(error) => {
                let left = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                assert!(left.contains(&error.kind()), "{error}");
            }
        }
    }

    /// The next message; `None` at the end of the connection.
    pub(super) fn receive(&mut self) -> Option<Value> {
        let mut message = Vec::new();
        let mut byte = [0];
        loop {
            match self.0.read(&mut byte) {
                Ok(0) => break,
                Ok(_) if byte == [0] => {
                    return Some(serde_json::from_slice(&message).expect("JSON"));
                }
                Ok(_) => message.push(byte[0]),
                // It left without reading all that was sent.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error} after {message:?}"),
            }
        }
        assert!(message.is_empty(), "the connection ended within a message");
        None
    }

    /// Calls a method of the interface: what it gives, or the error's name and what that carries.
    pub(super) fn call(
        &mut self,
        method: &str,
        parameters: Value,
    ) -> Result<Value, (String, Value)> {
        let method = format!("org.holdfast.Namespace.{method}");
        self.request(&json!({ "method": method, "parameters": parameters }))
    }

    /// Sends a request and waits for the answer.
    pub(super) fn request(&mut self, request: &Value) -> Result<Value, (String, Value)> {
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.send(&bytes);
        answer(self.receive().expect("an answer"))
    }
}

/// What an answer gives, or the error's name and what that carries.
pub(super) fn answer(mut message: Value) -> Result<Value, (String, Value)> {
    let parameters = message["parameters"].take();
    match message["error"].as_str() {
        Some(error) => Err((error.to_owned(), parameters)),
        None => Ok(parameters),
    }
}

/// A process that lives until it is ended.
pub(super) struct Sleeper(Child);

impl Sleeper {
    pub(super) fn start() -> Self {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Self(command.spawn().expect("a process"))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn end(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("waited for");
    }
}
