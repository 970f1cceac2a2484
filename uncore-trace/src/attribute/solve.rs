//! Least squares with no negative unknown, from sums: Lawson and Hanson, "Solving Least Squares
//! Problems" (1974), chapter 23, on the normal equations.
//!
//! Deterministic, and always ends: where rounding keeps the method from settling, after three times
//! as many steps as there are unknowns, the last non-negative solution stands.

/// Minimises `x' A x - 2 b' x` over `x >= 0`. `a` is symmetric, positive definite and of
/// `b.len()` rows; `x` is where it begins, and its answer.
#[expect(clippy::many_single_char_names, reason = "the letters of the normal equations")]
pub(super) fn nnls(a: &[f64], b: &[f64], x: &mut [f64]) {
    let n = b.len();
    let mut passive: Vec<bool> = x.iter().map(|value| *value > 0.0).collect();
    // Gradients below this are rounding: relative to what each unknown could explain.
    let tolerance: Vec<f64> =
        b.iter().map(|value| value.abs() * 1e-12 + f64::MIN_POSITIVE).collect();
    for step in 0..=3 * n {
        settle(a, b, x, &mut passive);
        let gradient = |j: usize| b[j] - (0..n).map(|k| a[j * n + k] * x[k]).sum::<f64>();
        let scaled = |j: usize| gradient(j) / a[j * n + j].sqrt();
        let best = (0..n)
            .filter(|&j| !passive[j] && gradient(j) > tolerance[j])
            .map(|j| (j, scaled(j)))
            .max_by(|(_, one), (_, other)| one.total_cmp(other));
        match best {
            Some((j, _)) if step < 3 * n => passive[j] = true,
            _ => return,
        }
    }
}

/// The inner loop: the least squares of the passive unknowns, stepping back to the border as often
/// as one would become negative.
fn settle(a: &[f64], b: &[f64], x: &mut [f64], passive: &mut [bool]) {
    let n = b.len();
    loop {
        let set: Vec<usize> = (0..n).filter(|&j| passive[j]).collect();
        let sub: Vec<f64> =
            set.iter().flat_map(|&j| set.iter().map(move |&k| a[j * n + k])).collect();
        let Some(factor) = Factor::of(&sub, set.len()) else {
            return;
        };
        let mut target: Vec<f64> = set.iter().map(|&j| b[j]).collect();
        factor.solve(&mut target);
        let step = set
            .iter()
            .zip(&target)
            .filter(|(_, target)| **target <= 0.0)
            .map(|(&j, target)| if x[j] > target.max(0.0) { x[j] / (x[j] - target) } else { 0.0 })
            .fold(f64::INFINITY, f64::min);
        if step.is_infinite() {
            for (&j, target) in set.iter().zip(&target) {
                x[j] = *target;
            }
            return;
        }
        for (&j, target) in set.iter().zip(&target) {
            x[j] += step * (target - x[j]);
            if *target <= 0.0 && x[j] <= target.abs() * 1e-12 + f64::MIN_POSITIVE {
                x[j] = 0.0;
                passive[j] = false;
            }
        }
    }
}

/// The inverse of a symmetric positive definite matrix of `n` rows.
pub(super) fn inverse(a: &[f64], n: usize) -> Option<Vec<f64>> {
    Some(Factor::of(a, n)?.inverse())
}

/// A symmetric positive definite matrix, factored.
#[derive(Debug)]
pub(super) struct Factor {
    n: usize,
    lower: Vec<f64>,
}

impl Factor {
    /// Of a matrix of `n` rows; `None` if it is not positive definite.
    pub(super) fn of(matrix: &[f64], n: usize) -> Option<Self> {
        Some(Self { n, lower: cholesky(matrix, n)? })
    }

    /// Turns `right` into the solution of `matrix x = right`.
    pub(super) fn solve(&self, right: &mut [f64]) {
        let (n, lower) = (self.n, &self.lower);
        for row in 0..n {
            let (known, rest) = right.split_at_mut(row);
            let sum: f64 = lower[row * n..][..row].iter().zip(&*known).map(|(l, x)| l * x).sum();
            rest[0] = (rest[0] - sum) / lower[row * n + row];
        }
        for row in (0..n).rev() {
            let (rest, known) = right.split_at_mut(row);
            let value = known[0] / lower[row * n + row];
            known[0] = value;
            for (rest, l) in rest.iter_mut().zip(&lower[row * n..][..row]) {
                *rest -= l * value;
            }
        }
    }

    /// The inverse, `n` to a row.
    pub(super) fn inverse(&self) -> Vec<f64> {
        let n = self.n;
        let mut all = vec![0.0; n * n];
        for (at, row) in all.chunks_exact_mut(n.max(1)).enumerate() {
            row[at] = 1.0;
            self.solve(row);
        }
        all
    }
}

/// `L` of `A = L L'`; `None` if `A` is not positive definite.
fn cholesky(a: &[f64], n: usize) -> Option<Vec<f64>> {
    let mut l = vec![0.0; n * n];
    for row in 0..n {
        for column in 0..=row {
            let (one, other) = (&l[row * n..row * n + column], &l[column * n..column * n + column]);
            let known: f64 = one.iter().zip(other).map(|(one, other)| one * other).sum();
            let rest = a[row * n + column] - known;
            if row == column {
                if rest <= 0.0 || !rest.is_finite() {
                    return None;
                }
                l[row * n + row] = rest.sqrt();
            } else {
                l[row * n + column] = rest / l[column * n + column];
            }
        }
    }
    Some(l)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_would_be_negative_is_nothing() {
        // Least squares alone would say 1.5 and -0.5.
        let mut x = [0.0; 2];
        nnls(&[1.0, 0.9, 0.9, 1.0], &[1.05, 0.85], &mut x);
        assert!((x[0] - 1.05).abs() < 1e-12 && x[1] == 0.0, "{x:?}");
    }

    proptest! {
        /// The conditions of Karush, Kuhn and Tucker, from wherever it begins.
        #[test]
        fn it_is_the_minimum(
            rows in prop::collection::vec(prop::collection::vec(-1.0f64..3.0, 6), 6..30),
            right in prop::collection::vec(-3.0f64..3.0, 30),
            begin in prop::collection::vec(0.0f64..2.0, 6),
        ) {
            let n = 6;
            let sum = |j: usize, k: usize| rows.iter().map(|row| row[j] * row[k]).sum::<f64>();
            let mut a: Vec<f64> = (0..n * n).map(|at| sum(at / n, at % n)).collect();
            for j in 0..n {
                a[j * n + j] += 1e-3;
            }
            let b: Vec<f64> =
                (0..n).map(|j| rows.iter().zip(&right).map(|(row, y)| row[j] * y).sum()).collect();
            let mut x = begin;
            nnls(&a, &b, &mut x);
            for j in 0..n {
                let gradient = b[j] - (0..n).map(|k| a[j * n + k] * x[k]).sum::<f64>();
                prop_assert!(x[j] >= 0.0);
                prop_assert!(gradient < 1e-6, "{gradient} at {j}");
                prop_assert!(x[j] == 0.0 || gradient.abs() < 1e-6, "{gradient} at {j}");
            }
            let inverse = inverse(&a, n).unwrap();
            for j in 0..n {
                let one: f64 = (0..n).map(|k| a[j * n + k] * inverse[k * n + j]).sum();
                prop_assert!((one - 1.0).abs() < 1e-6);
            }
        }
    }
}
