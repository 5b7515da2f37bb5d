//! Weights that are read ahead, stage after stage, within a bound of memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use gguf::source::{Memory, Source};

use crate::model::{Model, Tensor};
use crate::pool;
use crate::{Error, Result};

/// Bytes that are read at once, where a source has no other advice: few, because the system holds a copy meanwhile.
const PIECE: u64 = 1 << 20;

/// Bytes behind the read ones that the system keeps for now: it drops them in units that may reach over the end of what
/// is named, and would read these again.
const KEPT: u64 = 4 << 20;

/// Tensors that are needed at the same time.
pub(crate) type Stage<'a> = Vec<&'a Tensor>;

/// Bytes of a stage.
pub(crate) fn stage_bytes(stage: &Stage<'_>) -> u64 {
    stage.iter().map(|t| t.range.len() as u64).sum()
}

/// Bytes of some tensors in memory. They count against the bound until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    /// By file of the set and first byte there.
    tensors: HashMap<(usize, usize), Arc<dyn Source>>,
    n_bytes: u64,
    bound: Arc<Bound>,
}

impl Held {
    /// The bytes of a tensor of the stage.
    pub(crate) fn bytes(&self, t: &Tensor) -> &[u8] {
        let source = self.tensors.get(&(t.part, t.range.start));
        let bytes = source.and_then(|s| s.bytes());
        bytes.expect("a stage has all tensors that its part of the forward pass takes")
    }

    /// Waits for room for `n` more bytes.
    ///
    /// # Errors
    /// [`Error::Stopped`] if nothing more is wanted.
    fn take(&mut self, n: u64) -> Result<()> {
        let wanted = self.bound.take(n);
        self.n_bytes += n;
        if wanted { Ok(()) } else { Err(Error::Stopped) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tensors.clear();
        self.bound.give_back(self.n_bytes);
    }
}

/// How many bytes may be held.
#[derive(Debug)]
struct Bound {
    max: u64,
    /// Whether a tensor counts as held from its first byte on: its addresses are all taken then, which matters where
    /// their number is limited. Else it counts as far as it was read, so that more of the next stage is read ahead.
    whole: bool,
    state: Mutex<BoundState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BoundState {
    held: u64,
    stopped: bool,
}

impl BoundState {
    /// Whether `n` more bytes may be held: what is larger than the bound passes where nothing else is held.
    fn has_room(&self, n: u64, max: u64) -> bool {
        self.held == 0 || self.held.saturating_add(n) <= max
    }
}

impl Bound {
    fn lock(&self) -> std::sync::MutexGuard<'_, BoundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room; false if nothing more is wanted.
    fn take(&self, n: u64) -> bool {
        let mut state = self.lock();
        while !state.stopped && !state.has_room(n, self.max) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.held += n;
        !state.stopped
    }

    fn give_back(&self, n: u64) {
        self.lock().held -= n;
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// Where a tensor's bytes are.
struct Place {
    key: (usize, usize),
    source: Arc<dyn Source>,
    range: Range<u64>,
}

/// A thread that reads stages ahead of their use.
#[derive(Debug)]
pub(crate) struct Reader {
    /// `None` when it was dropped.
    stages: Option<Receiver<Result<Held>>>,
    bound: Arc<Bound>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Starts to read `stages`, of which at most `max` bytes are held at a time; the largest must fit.
    ///
    /// # Errors
    /// A system without a thread to give.
    pub(crate) fn start(model: &Model, stages: &[Stage<'_>], max: u64) -> Result<Self> {
        let largest = stages.iter().map(stage_bytes).max().unwrap_or(0);
        let bound = Arc::new(Bound {
            max: max.max(largest),
            whole: gguf_cli::AddressSpace::now().is_some(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let place = |t: &&Tensor| Place {
            key: (t.part, t.range.start),
            source: model.file().parts()[t.part].shared_source(),
            range: t.range.start as u64..t.range.end as u64,
        };
        // In the order of the file, which the system reads ahead.
        let in_order = |stage: &Stage<'_>| {
            let mut places: Vec<Place> = stage.iter().map(place).collect();
            places.sort_by_key(|p| p.key);
            places
        };
        let places: Vec<Vec<Place>> = stages.iter().map(in_order).collect();
        // The bound alone decides how far ahead is read.
        let (sender, stages) = sync_channel(places.len().max(1));
        let shared = Arc::clone(&bound);
        let beside = pool::beside();
        gguf_cli::room_for_threads(1).map_err(|e| Error::Settings(e.into()))?;
        let (begins, begun) = channel::<()>();
        let read = move || {
            drop(begins);
            beside.leave_seat();
            read_stages(places, &shared, &sender);
        };
        let thread = std::thread::Builder::new()
            .name("weights".to_owned())
            .spawn(read)
            .map_err(|e| Error::Settings(format!("no thread to read weights: {e}").into()))?;
        // As in a pool: it takes what was checked for before anything else does.
        let _ = begun.recv();
        Ok(Self {
            stages: Some(stages),
            bound,
            thread: Some(thread),
        })
    }

    /// The next stage; waits until it is read.
    pub(crate) fn next(&mut self) -> Result<Held> {
        let stages = self.stages.as_ref().expect("it is taken when this is dropped");
        stages
            .recv()
            .unwrap_or_else(|_| Err(Error::Settings("the thread that reads weights ended".into())))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.bound.stop();
        // What was read and not used is dropped with it.
        self.stages = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has ended the results: whoever waited for them was told.
            let _ = thread.join();
        }
    }
}

fn read_stages(stages: Vec<Vec<Place>>, bound: &Arc<Bound>, sender: &SyncSender<Result<Held>>) {
    for stage in stages {
        let mut held = Held {
            tensors: HashMap::new(),
            n_bytes: 0,
            bound: Arc::clone(bound),
        };
        let read = stage
            .into_iter()
            .try_for_each(|place| read_tensor(place, &mut held));
        let stage = match read {
            Ok(()) => Ok(held),
            Err(Error::Stopped) => return,
            Err(e) => Err(e),
        };
        let failed = stage.is_err();
        if sender.send(stage).is_err() || failed {
            return;
        }
    }
}

/// Adds a tensor to `held`, piece by piece as there is room.
fn read_tensor(place: Place, held: &mut Held) -> Result<()> {
    let Place { key, source, range } = place;
    let len = range.end - range.start;
    let whole = held.bound.whole;
    if whole {
        held.take(len)?;
    }
    let mut memory = Memory::new(source.path(), len)?;
    let piece = source.advice(range.start, len).at_once.max(PIECE);
    let pieces = memory
        .bytes_mut()
        .chunks_mut(usize::try_from(piece).unwrap_or(usize::MAX));
    let mut at = range.start;
    for bytes in pieces {
        let n = bytes.len() as u64;
        if !whole {
            held.take(n)?;
        }
        source.read_at(at, bytes)?;
        // A second copy in the system's memory would push out what is wanted again.
        source.forget(at.saturating_sub(KEPT), n);
        at += n;
    }
    held.tensors.insert(key, memory.into_source()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_held_than_the_bound_allows() {
        let held = |held| BoundState { held, stopped: false };
        for (before, n, has_room) in [
            (0, 10, true),
            // A single piece passes, however large.
            (0, 50, true),
            (4, 6, true),
            (4, 7, false),
            (10, 0, true),
            (50, 1, false),
            (1, u64::MAX, false),
        ] {
            assert_eq!(held(before).has_room(n, 10), has_room, "{before} and {n}");
        }
    }

    #[test]
    fn what_waits_for_room_goes_on_when_some_is_given_back() {
        let bound = Arc::new(Bound {
            max: 10,
            whole: false,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        assert!(bound.take(6));
        let other = Arc::clone(&bound);
        let waiting = std::thread::spawn(move || (other.take(6), other.lock().held));
        bound.give_back(6);
        assert_eq!(waiting.join().unwrap(), (true, 6));
        bound.stop();
        assert!(!bound.take(6));
    }
}
