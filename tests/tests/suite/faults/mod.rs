//! Faults that are really injected: processes killed at random moments, full disks, files that shrink while they are
//! read, calls that fail as on a bad disk, folders that cannot be written, clocks that went back, two runs at once,
//! shards that come late.
//!
//! A [`job::Job`] is a command line in a folder of its own, what the folder has before it and after it, and the names
//! that a stopped run may leave. Whatever is done to a run, each file of the folder must then be one of these: as before,
//! as after, or left under such a name; the commands that a person would give next must lead to what an undisturbed run
//! leaves, byte for byte; and what runs only read must have its SHA-256 still.
//!
//! `FAULTS_N` sets how often each job is killed (`tests/faults/run` does), and with that how many moments other faults
//! get; `FAULTS_SEED` sets which moments.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod calls;
mod clock;
mod disk;
mod job;
mod kills;
mod places;
mod races;
mod shards;
mod shrink;
mod world;
