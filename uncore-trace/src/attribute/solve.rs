//! Linear equations with a symmetric positive definite matrix.

/// The sum of products, in lanes that a vector unit adds at the same time.
pub(super) fn dot(one: &[f64], other: &[f64]) -> f64 {
    let (ones, rest) = one.as_chunks::<8>();
    let (others, rest_of_other) = other[..one.len()].as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (one, other) in ones.iter().zip(others) {
        for lane in 0..8 {
            sums[lane] += one[lane] * other[lane];
        }
    }
    let rest: f64 = rest.iter().zip(rest_of_other).map(|(one, other)| one * other).sum();
    sums.iter().sum::<f64>() + rest
}

/// Copies the lower half of a symmetric matrix of `n` rows to its upper half.
pub(super) fn mirror(matrix: &mut [f64], n: usize) {
    for at in 0..n {
        for other in 0..at {
            matrix[other * n + at] = matrix[at * n + other];
        }
    }
}

/// The Cholesky factor of a symmetric positive definite matrix.
#[derive(Debug)]
pub(super) struct Factor {
    n: usize,
    lower: Vec<f64>,
}

impl Factor {
    /// Factors a matrix of `n` rows; `None` if it is not positive definite.
    pub(super) fn of(matrix: &[f64], n: usize) -> Option<Self> {
        Some(Self { n, lower: cholesky(matrix, n)? })
    }

    /// Replaces `right` by the solution of `matrix x = right`.
    pub(super) fn solve(&self, right: &mut [f64]) {
        let (n, lower) = (self.n, &self.lower);
        for row in 0..n {
            let (known, rest) = right.split_at_mut(row);
            let sum = dot(&lower[row * n..][..row], known);
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

    /// The element of the inverse's diagonal at this place.
    pub(super) fn variance(&self, at: usize) -> f64 {
        // The inverse is `L'^-1 L^-1`: the squared length of a column of `L^-1`.
        let (n, lower) = (self.n, &self.lower);
        let mut column = vec![0.0; n - at];
        column[0] = 1.0 / lower[at * n + at];
        for row in at + 1..n {
            let of = &lower[row * n + at..row * n + row];
            let sum: f64 = of.iter().zip(&column).map(|(l, x)| l * x).sum();
            column[row - at] = -sum / lower[row * n + row];
        }
        column.iter().map(|its| its * its).sum()
    }

    /// The inverse, with `n` numbers per row.
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
            let rest = a[row * n + column] - dot(one, other);
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

    proptest! {
        #[test]
        fn what_is_solved_solves_the_equations(
            rows in prop::collection::vec(prop::collection::vec(-1.0f64..3.0, 6), 6..30),
            right in prop::collection::vec(-3.0f64..3.0, 6),
        ) {
            let n = 6;
            let sum = |j: usize, k: usize| rows.iter().map(|row| row[j] * row[k]).sum::<f64>();
            let mut a: Vec<f64> = (0..n * n).map(|at| sum(at / n, at % n)).collect();
            for j in 0..n {
                a[j * n + j] += 1e-3;
            }
            let mut x = right.clone();
            Factor::of(&a, n).unwrap().solve(&mut x);
            let factor = Factor::of(&a, n).unwrap();
            let inverse = factor.inverse();
            for j in 0..n {
                let found: f64 = (0..n).map(|k| a[j * n + k] * x[k]).sum();
                prop_assert!((found - right[j]).abs() < 1e-6);
                let one: f64 = (0..n).map(|k| a[j * n + k] * inverse[k * n + j]).sum();
                prop_assert!((one - 1.0).abs() < 1e-6);
                prop_assert!((factor.variance(j) - inverse[j * n + j]).abs() < 1e-6 * inverse[j * n + j].max(1.0));
            }
        }
    }
}
