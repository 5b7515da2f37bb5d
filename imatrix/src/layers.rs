//! A run in which all chunks pass one layer after the other.

use gguf_cli::{Failure, Result};
use gguf_runtime::chunks::Evaluator;
use gguf_runtime::options::LayerProgress;
use gguf_runtime::{Error, LayerStart, LayerStep, Observe};

use crate::checkpoint::{Reached, States};
use crate::fault;
use crate::run::{Job, Watched};

impl Job<'_> {
    /// Takes all chunks through the layers, from those on that were reached before; nothing where the evaluation is not
    /// layer by layer. What is due is kept behind each layer.
    pub(crate) fn pass_layers(
        &self,
        evaluator: &mut Evaluator<'_>,
        reached: Option<&Reached>,
        mut watched: Option<Watched<'_, '_>>,
    ) -> Result<()> {
        let Evaluator::Layered(layered) = evaluator else {
            return Ok(());
        };
        let texts = &[self.chunks];
        let mut progress = LayerProgress::new(layered, texts, "imatrix", self.args.talk.quiet);
        let states = reached
            .filter(|r| r.layers > 0)
            .map(|r| Ok::<_, Failure>((r.layers, self.states(r)?)));
        let states = states.transpose()?;
        let mut fill = |first: usize, out: &mut [f32]| match &states {
            Some((_, states)) => Ok(states.read(first, out)?),
            None => Ok(()),
        };
        let start = states.as_ref().map(|&(layer, _)| LayerStart {
            layer,
            fill: &mut fill,
        });
        let kept = watched;
        let observer = watched.as_mut().map(|w| w as &mut dyn Observe);
        let done = layered.run_layers(texts, self.wanted(), start, observer, &mut |step| {
            progress.step(step);
            if let Some(watched) = kept {
                if watched.stop.get() {
                    return Err(Error::Stopped);
                }
                self.keep_layer(step, watched);
            }
            Ok(())
        });
        self.fault(watched)?;
        done.map_err(|e| fault::explain(e, self.model.file()))?;
        progress.finish();
        Ok(())
    }

    fn states(&self, reached: &Reached) -> Result<States> {
        let n_embd = self.model.spec().n_embd;
        let n_rows = self.chunks.n_chunks() * self.chunks.n_ctx();
        let n_layer = self.model.spec().layers.len();
        let path = self.checkpoint_path();
        if reached.layers >= n_layer {
            return Err(Failure::Input(format!(
                "checkpoint `{}`: expected fewer than {n_layer} layers, found {}",
                path.display(),
                reached.layers
            )));
        }
        States::open(&path, n_embd, n_rows)
    }

    /// Writes a checkpoint behind a layer, if it is due.
    fn keep_layer(&self, step: LayerStep<'_>, watched: Watched<'_, '_>) {
        let (layers, every) = (step.layer + 1, self.args.output_frequency);
        let is_due = every > 0 && layers.is_multiple_of(every) && layers < step.n_layer;
        if !step.ends_layer || !is_due {
            return;
        }
        let reached = Reached {
            layers,
            ..Reached::default()
        };
        self.keep_reached(&reached, watched.collector.borrow().sums(), Some(step.states));
    }
}
