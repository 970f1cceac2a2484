//! Linear equations with a symmetric positive definite matrix.

use std::iter::Sum;

use super::symmetric::{Real, Symmetric};
use super::wide::wide;

/// The sum of products.
#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
pub(super) fn dot(one: &[f64], other: &[f64]) -> f64 {
    in_lanes::<f64, 8>(one, other)
}

/// The sum of products, in lanes that a vector unit adds at the same time. `LANES` is a multiple of 8.
#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
fn in_lanes<T: Real + Sum, const LANES: usize>(one: &[T], other: &[T]) -> T {
    let (ones, rest) = one.as_chunks::<LANES>();
    let (others, rest_of_other) = other[..one.len()].as_chunks::<LANES>();
    let mut sums = [T::default(); LANES];
    for (one, other) in ones.iter().zip(others) {
        for lane in 0..LANES {
            sums[lane] += one[lane] * other[lane];
        }
    }
    // In the same way what is left, and the sums of the lanes.
    let mut few = [T::default(); 8];
    for chunk in sums.as_chunks::<8>().0 {
        for lane in 0..8 {
            few[lane] += chunk[lane];
        }
    }
    let (ones, rest) = rest.as_chunks::<8>();
    let (others, rest_of_other) = rest_of_other.as_chunks::<8>();
    for (one, other) in ones.iter().zip(others) {
        for lane in 0..8 {
            few[lane] += one[lane] * other[lane];
        }
    }
    let rest: T = rest.iter().zip(rest_of_other).map(|(one, other)| *one * *other).sum();
    let mut sum: T = few.into_iter().sum();
    sum += rest;
    sum
}

/// A symmetric matrix with all its numbers, row after row.
#[derive(Debug, Default)]
pub(super) struct Square {
    /// Number of rows.
    pub n: usize,
    /// Its numbers.
    pub of: Vec<f32>,
}

impl Square {
    /// All numbers of a matrix.
    pub(super) fn of<T: Real>(lower: &Symmetric<T>) -> Self {
        let n = lower.len();
        let mut of = vec![0.0; n * n];
        for at in 0..n {
            for (other, its) in lower.row(at).iter().enumerate() {
                let its: f64 = (*its).into();
                of[at * n + other] = its as f32;
                of[other * n + at] = its as f32;
            }
        }
        Self { n, of }
    }

    /// The product with a vector.
    pub(super) fn times(&self, vector: &[f32]) -> Vec<f32> {
        wide(|| {
            self.of
                .chunks_exact(self.n.max(1))
                .map(|row| in_lanes::<f32, 32>(row, vector))
                .collect()
        })
    }
}

/// Solves `A x = rest` with a symmetric positive definite `A`. `product` multiplies `A` and a vector, and
/// `diagonal` is that of `A`, which conditions it (Shewchuk 1994, "An Introduction to the Conjugate
/// Gradient Method Without the Agonizing Pain", B3). `most` has the largest number of iterations, and
/// the part of the squared residual at which it has converged.
pub(super) fn conjugate_gradient(
    product: impl Fn(&[f64], &mut [f64]),
    diagonal: &[f64],
    mut rest: Vec<f64>,
    most: (usize, f64),
) -> Vec<f64> {
    let n = rest.len();
    let mut found = vec![0.0; n];
    let mut eased: Vec<f64> =
        rest.iter().zip(diagonal).map(|(its, diagonal)| its / diagonal).collect();
    let mut along = eased.clone();
    let mut moved = vec![0.0; n];
    let mut size = dot(&rest, &eased);
    let least = most.1 * size;
    for _ in 0..most.0 {
        if size <= least || !size.is_finite() {
            break;
        }
        product(&along, &mut moved);
        let step = size / dot(&along, &moved).max(f64::MIN_POSITIVE);
        for at in 0..n {
            found[at] += step * along[at];
            rest[at] -= step * moved[at];
            eased[at] = rest[at] / diagonal[at];
        }
        let next = dot(&rest, &eased);
        let gain = next / size;
        for at in 0..n {
            along[at] = eased[at] + gain * along[at];
        }
        size = next;
    }
    found
}

/// The Cholesky factor of a symmetric positive definite matrix.
#[derive(Debug)]
pub(super) struct Factor {
    n: usize,
    lower: Vec<f64>,
}

impl Factor {
    /// Factors a matrix; `None` if it is not positive definite.
    pub(super) fn of(matrix: &Symmetric<f64>) -> Option<Self> {
        Some(Self { n: matrix.len(), lower: wide(|| cholesky(matrix))? })
    }

    /// The diagonal of the inverse.
    pub(super) fn variances(&self) -> Vec<f64> {
        wide(|| self.columns().iter().map(|column| dot(column, column)).collect())
    }

    /// The inverse.
    pub(super) fn inverse(&self) -> Symmetric<f32> {
        let mut all = Symmetric::zero(self.n);
        wide(|| {
            // The inverse is `L'^-1 L^-1`.
            let columns = self.columns();
            for (at, column) in columns.iter().enumerate() {
                for (to, other) in all.row_mut(at).iter_mut().zip(&columns) {
                    *to = dot(column, &other[other.len() - column.len()..]) as f32;
                }
            }
        });
        all
    }

    /// The columns of `L^-1`, each from the diagonal on.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
    fn columns(&self) -> Vec<Vec<f64>> {
        let (n, lower) = (self.n, &self.lower);
        let mut columns = Vec::with_capacity(n);
        for at in 0..n {
            let mut column = vec![0.0; n - at];
            column[0] = 1.0 / lower[at * n + at];
            for row in at + 1..n {
                let (known, rest) = column.split_at_mut(row - at);
                rest[0] = -dot(&lower[row * n + at..row * n + row], known) / lower[row * n + row];
            }
            columns.push(column);
        }
        columns
    }
}

/// `L` of `A = L L'`; `None` if `A` is not positive definite.
#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
fn cholesky(a: &Symmetric<f64>) -> Option<Vec<f64>> {
    let n = a.len();
    let mut l = vec![0.0; n * n];
    for row in 0..n {
        for column in 0..=row {
            let (one, other) = (&l[row * n..][..column], &l[column * n..][..column]);
            let rest = a.row(row)[column] - dot(one, other);
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
            let mut a = Symmetric::<f64>::zero(n);
            for j in 0..n {
                for (k, to) in a.row_mut(j).iter_mut().enumerate() {
                    *to = rows.iter().map(|row| row[j] * row[k]).sum::<f64>();
                }
                a.row_mut(j)[j] += 1e-1;
            }
            let factor = Factor::of(&a).unwrap();
            let (inverse, variances) = (factor.inverse(), factor.variances());
            for (j, variance) in variances.into_iter().enumerate() {
                let unit: Vec<f64> = (0..n).map(|k| f64::from(u8::from(j == k))).collect();
                let one = a.times(&inverse.times(&unit));
                for k in 0..n {
                    prop_assert!((one[k] - unit[k]).abs() < 1e-2);
                }
                let own = f64::from(inverse.row(j)[j]);
                prop_assert!((variance - own).abs() < 1e-4 * own.max(1.0));
            }
            let diagonal: Vec<f64> = (0..n).map(|j| a.row(j)[j]).collect();
            let product = |x: &[f64], to: &mut [f64]| to.copy_from_slice(&a.times(x));
            let x = conjugate_gradient(product, &diagonal, right.clone(), (100, 1e-20));
            let found = a.times(&x);
            let same = Square::of(&a).times(&x.iter().map(|its| *its as f32).collect::<Vec<_>>());
            for j in 0..n {
                prop_assert!((found[j] - right[j]).abs() < 1e-6);
                prop_assert!((found[j] - f64::from(same[j])).abs() < 1e-2);
            }
        }
    }
}
