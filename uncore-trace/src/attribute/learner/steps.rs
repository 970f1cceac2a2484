//! Steps of rates from block to block: most are near 0 and few are large.
//!
//! A step has a Student distribution with one degree of freedom, of scale [`STEP`] x the rate: a
//! normal distribution whose precision is learnt, by expectation and maximisation, from the step and
//! from how uncertain it is. The uncertainty is that of each column alone with its information
//! divided by its variance inflation factor, for the other columns.

use std::collections::VecDeque;

use super::blocks::{Block, STEP};
use super::prior::{BARRIER, Kind, Prior};

/// Blocks whose counts fit worse than this may be after a jump of all rates: mean of weight x error^2.
const MISFIT: f64 = 3.0;

/// The step that is allowed there at first, in the size of the rate.
const JUMP: f64 = 0.1;

/// Precisions of steps, from the last rates; those of the blocks before `improved` are kept.
#[expect(clippy::needless_range_loop, reason = "several vectors are walked side by side")]
pub(super) fn renew(
    blocks: &mut VecDeque<Block>,
    prior: &Prior,
    kinds: &[Kind],
    mean: f64,
    inflation: &[f64],
    improved: usize,
    pass: usize,
) {
    let n = kinds.len();
    let from = improved.saturating_sub(1);
    if pass == 0 {
        for at in from.max(1)..blocks.len() {
            if blocks[at].misfit() > MISFIT {
                let block = &mut blocks[at - 1];
                for place in 0..n {
                    if kinds[place] == Kind::Near {
                        let size = JUMP * block.rate[place].max(0.1);
                        block.step[place] = block.step[place].min(1.0 / (size * size));
                    }
                }
            }
        }
        return;
    }
    let marginal = Marginal::of(blocks, prior, kinds, inflation);
    let count = blocks.len();
    for place in 0..n {
        let sum: f64 = blocks.iter().map(|block| block.rate[place]).sum();
        let level = (sum / count as f64).max(0.1 * kinds[place].mode(mean));
        let least = (STEP * level).powi(2);
        for at in from..count.saturating_sub(1) {
            let step = blocks[at + 1].rate[place] - blocks[at].rate[place];
            let (here, next) = (at * n + place, (at + 1) * n + place);
            let together = marginal.factor[here] * marginal.variance[next];
            let uncertain = marginal.variance[here] + marginal.variance[next] - 2.0 * together;
            blocks[at].step[place] = 2.0 / (least + step * step + uncertain.max(0.0));
        }
    }
}

/// Variances of rates.
pub(super) fn vary(blocks: &mut VecDeque<Block>, prior: &Prior, kinds: &[Kind], inflation: &[f64]) {
    let marginal = Marginal::of(blocks, prior, kinds, inflation);
    let n = kinds.len();
    for (block, variance) in blocks.iter_mut().zip(marginal.variance.chunks_exact(n)) {
        block.variance.copy_from_slice(variance);
    }
}

/// Of each block and place.
struct Marginal {
    variance: Vec<f64>,
    /// Covariance with the next block, by the variance of that.
    factor: Vec<f64>,
}

impl Marginal {
    #[expect(clippy::needless_range_loop, reason = "several vectors are walked side by side")]
    fn of(blocks: &VecDeque<Block>, prior: &Prior, kinds: &[Kind], inflation: &[f64]) -> Self {
        let (n, count) = (kinds.len(), blocks.len());
        let mut own = vec![0.0; count * n];
        for (at, block) in blocks.iter().enumerate() {
            let from = at * n;
            for place in 0..n {
                let rate = block.rate[place];
                own[from + place] = BARRIER / (rate * rate);
            }
            block.diagonal(|place, value| own[from + place] += value / inflation[place]);
            if at == 0 {
                for place in 0..prior.len() {
                    own[place] += prior.at(place, place) / inflation[place];
                }
            }
        }
        // Information from the blocks before and after, through the steps between.
        let mut variance = own.clone();
        let mut before = vec![0.0; n];
        let mut forward = vec![0.0; count * n];
        for at in 0..count {
            for place in 0..n {
                let here = at * n + place;
                let known = own[here] + before[place];
                forward[here] = known;
                let step = blocks[at].step[place];
                before[place] = step * known / (step + known);
            }
        }
        let mut after = vec![0.0; n];
        let mut factor = vec![0.0; count * n];
        for at in (0..count).rev() {
            for place in 0..n {
                let here = at * n + place;
                variance[here] = 1.0 / (forward[here] + after[place]);
                if at + 1 < count {
                    let step = blocks[at].step[place];
                    factor[here] = step / (step + forward[here]);
                }
                if at > 0 {
                    let step = blocks[at - 1].step[place];
                    let known = own[here] + after[place];
                    after[place] = step * known / (step + known);
                }
            }
        }
        Self { variance, factor }
    }
}
