//! Linear equations with a symmetric positive definite matrix.

use std::iter::Sum;

use super::symmetric::{Real, SymmetricMatrix};
use super::wide::run_with_wide_vectors;

/// The dot product of two vectors.
#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
pub(super) fn dot_product(left_vector: &[f64], right_vector: &[f64]) -> f64 {
    dot_product_in_lanes::<f64, 8>(left_vector, right_vector)
}

/// The dot product, in lanes that a vector unit adds at the same time. `LANES` is a multiple of 8.
#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
fn dot_product_in_lanes<T: Real + Sum, const LANES: usize>(
    left_vector: &[T],
    right_vector: &[T],
) -> T {
    let (left_chunks, left_remainder) = left_vector.as_chunks::<LANES>();
    let (right_chunks, right_remainder) = right_vector[..left_vector.len()].as_chunks::<LANES>();
    let mut sums = [T::default(); LANES];
    for (left_chunk, right_chunk) in left_chunks.iter().zip(right_chunks) {
        for lane in 0..LANES {
            sums[lane] += left_chunk[lane] * right_chunk[lane];
        }
    }
    // The remainder, and the sums of the lanes, are added in eight lanes.
    let mut lane_sums = [T::default(); 8];
    for chunk in sums.as_chunks::<8>().0 {
        for lane in 0..8 {
            lane_sums[lane] += chunk[lane];
        }
    }
    let (left_eights, left_tail) = left_remainder.as_chunks::<8>();
    let (right_eights, right_tail) = right_remainder.as_chunks::<8>();
    for (left_chunk, right_chunk) in left_eights.iter().zip(right_eights) {
        for lane in 0..8 {
            lane_sums[lane] += left_chunk[lane] * right_chunk[lane];
        }
    }
    let tail_sum: T = left_tail.iter().zip(right_tail).map(|(a, b)| *a * *b).sum();
    let mut sum: T = lane_sums.into_iter().sum();
    sum += tail_sum;
    sum
}

/// A symmetric matrix with all its numbers, stored row by row.
#[derive(Debug, Default)]
pub(super) struct SquareMatrix {
    /// Number of rows.
    pub n: usize,
    /// The numbers, row by row.
    pub data: Vec<f32>,
}

impl SquareMatrix {
    /// Makes it from the lower triangle.
    pub(super) fn from_lower<T: Real>(lower: &SymmetricMatrix<T>) -> Self {
        let n = lower.len();
        let mut data = vec![0.0; n * n];
        for row in 0..n {
            for (column, entry) in lower.row(row).iter().enumerate() {
                let value: f64 = (*entry).into();
                data[row * n + column] = value as f32;
                data[column * n + row] = value as f32;
            }
        }
        Self { n, data }
    }

    /// The product with a vector, by rows.
    pub(super) fn multiply_vector(&self, vector: &[f32]) -> Vec<f32> {
        run_with_wide_vectors(|| {
            self.data
                .chunks_exact(self.n.max(1))
                .map(|row| dot_product_in_lanes::<f32, 32>(row, vector))
                .collect()
        })
    }
}

/// Solves `A x = rhs` with a symmetric positive definite `A`. `product` multiplies it and a vector;
/// `diagonal` is that of `A`, the preconditioner (Shewchuk 1994, "An Introduction to the Conjugate
/// Gradient Method Without the Agonizing Pain", B3). `limits` has the number of iterations, and
/// the fraction of the squared residual at which it has converged. `residual` is `rhs` at first.
pub(super) fn conjugate_gradient(
    product: impl Fn(&[f64], &mut [f64]),
    diagonal: &[f64],
    mut residual: Vec<f64>,
    limits: (usize, f64),
) -> Vec<f64> {
    let n = residual.len();
    let mut solution = vec![0.0; n];
    let mut preconditioned: Vec<f64> =
        residual.iter().zip(diagonal).map(|(r_i, d_i)| r_i / d_i).collect();
    let mut direction = preconditioned.clone();
    let mut image = vec![0.0; n];
    let mut residual_norm = dot_product(&residual, &preconditioned);
    let converged_norm = limits.1 * residual_norm;
    for _ in 0..limits.0 {
        if residual_norm <= converged_norm || !residual_norm.is_finite() {
            break;
        }
        product(&direction, &mut image);
        let step = residual_norm / dot_product(&direction, &image).max(f64::MIN_POSITIVE);
        for i in 0..n {
            solution[i] += step * direction[i];
            residual[i] -= step * image[i];
            preconditioned[i] = residual[i] / diagonal[i];
        }
        let next_norm = dot_product(&residual, &preconditioned);
        let beta = next_norm / residual_norm;
        for i in 0..n {
            direction[i] = preconditioned[i] + beta * direction[i];
        }
        residual_norm = next_norm;
    }
    solution
}

/// The Cholesky factor of a symmetric positive definite matrix.
#[derive(Debug)]
pub(super) struct CholeskyFactor {
    n: usize,
    lower: Vec<f64>,
}

impl CholeskyFactor {
    /// Factors a matrix; `None` if it is not positive definite.
    pub(super) fn factorize(matrix: &SymmetricMatrix<f64>) -> Option<Self> {
        Some(Self { n: matrix.len(), lower: run_with_wide_vectors(|| factorize_lower(matrix))? })
    }

    /// The diagonal of the inverse: variances, if the matrix is a precision matrix.
    pub(super) fn inverse_diagonal(&self) -> Vec<f64> {
        run_with_wide_vectors(|| {
            self.inverse_columns().iter().map(|column| dot_product(column, column)).collect()
        })
    }

    /// The inverse of the matrix.
    pub(super) fn invert(&self) -> SymmetricMatrix<f32> {
        let mut inverse = SymmetricMatrix::zero(self.n);
        run_with_wide_vectors(|| {
            // The inverse is `L'^-1 L^-1`.
            let columns = self.inverse_columns();
            for (row, column) in columns.iter().enumerate() {
                for (entry, row_below) in inverse.row_mut(row).iter_mut().zip(&columns) {
                    *entry =
                        dot_product(column, &row_below[row_below.len() - column.len()..]) as f32;
                }
            }
        });
        inverse
    }

    /// The columns of `L^-1`, each from the diagonal on.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
    fn inverse_columns(&self) -> Vec<Vec<f64>> {
        let (n, lower) = (self.n, &self.lower);
        let mut columns = Vec::with_capacity(n);
        for j in 0..n {
            let mut column = vec![0.0; n - j];
            column[0] = 1.0 / lower[j * n + j];
            for i in j + 1..n {
                let (solved, unsolved) = column.split_at_mut(i - j);
                unsolved[0] = -dot_product(&lower[i * n + j..i * n + i], solved) / lower[i * n + i];
            }
            columns.push(column);
        }
        columns
    }
}

/// `L` of `A = L L'`; `None` if `A` is not positive definite.
#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
fn factorize_lower(a: &SymmetricMatrix<f64>) -> Option<Vec<f64>> {
    let n = a.len();
    let mut l = vec![0.0; n * n];
    for row in 0..n {
        for column in 0..=row {
            let (row_prefix, column_prefix) = (&l[row * n..][..column], &l[column * n..][..column]);
            let remainder = a.row(row)[column] - dot_product(row_prefix, column_prefix);
            if row == column {
                if remainder <= 0.0 || !remainder.is_finite() {
                    return None;
                }
                l[row * n + row] = remainder.sqrt();
            } else {
                l[row * n + column] = remainder / l[column * n + column];
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
            rhs in prop::collection::vec(-3.0f64..3.0, 6),
        ) {
            let n = 6;
            let mut a = SymmetricMatrix::<f64>::zero(n);
            for j in 0..n {
                for (k, to) in a.row_mut(j).iter_mut().enumerate() {
                    *to = rows.iter().map(|row| row[j] * row[k]).sum::<f64>();
                }
                a.row_mut(j)[j] += 1e-1;
            }
            let factor = CholeskyFactor::factorize(&a).unwrap();
            let (inverse, variances) = (factor.invert(), factor.inverse_diagonal());
            for (j, variance) in variances.into_iter().enumerate() {
                let unit: Vec<f64> = (0..n).map(|k| f64::from(u8::from(j == k))).collect();
                let product_column = a.multiply_vector(&inverse.multiply_vector(&unit));
                for k in 0..n {
                    prop_assert!((product_column[k] - unit[k]).abs() < 1e-2);
                }
                let inverse_entry = f64::from(inverse.row(j)[j]);
                prop_assert!((variance - inverse_entry).abs() < 1e-4 * inverse_entry.max(1.0));
            }
            let diagonal: Vec<f64> = (0..n).map(|j| a.row(j)[j]).collect();
            let product = |x: &[f64], to: &mut [f64]| to.copy_from_slice(&a.multiply_vector(x));
            let x = conjugate_gradient(product, &diagonal, rhs.clone(), (100, 1e-20));
            let product_of_solution = a.multiply_vector(&x);
            let same = SquareMatrix::from_lower(&a).multiply_vector(&x.iter().map(|its| *its as f32).collect::<Vec<_>>());
            for j in 0..n {
                prop_assert!((product_of_solution[j] - rhs[j]).abs() < 1e-6);
                prop_assert!((product_of_solution[j] - f64::from(same[j])).abs() < 1e-2);
            }
        }
    }
}
