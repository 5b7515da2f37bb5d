use std::io::{Read, Write};

use crate::{Result, Session};

pub(super) trait State {
    fn save_state(&self, seq: usize, out: &mut dyn Write) -> Result<()>;
    fn load_state(&mut self, seq: usize, from: &mut dyn Read) -> Result<()>;
}

impl State for Session<'_> {
    fn save_state(&self, _: usize, _: &mut dyn Write) -> Result<()> {
        Err(crate::Error::Stopped)
    }
    fn load_state(&mut self, _: usize, _: &mut dyn Read) -> Result<()> {
        Err(crate::Error::Stopped)
    }
}
