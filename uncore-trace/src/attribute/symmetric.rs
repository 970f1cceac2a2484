//! Symmetric matrices: sums of products of the use by columns.

use std::ops::{AddAssign, Mul, MulAssign};

use super::wide::run_with_wide_vectors;

/// The numbers of a matrix: `f64`, or `f32` where many matrices are kept.
pub(super) trait Real:
    Copy + Default + AddAssign + MulAssign + Mul<Output = Self> + Into<f64>
{
    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
}

impl Real for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
}

impl Real for f32 {
    fn from_f64(value: f64) -> Self {
        value as Self
    }
}

/// Number of rows whose products are added at once.
pub(super) const BATCH_ROWS: usize = 8;

/// Up to [`BATCH_ROWS`] dense rows of the same length.
#[derive(Clone, Debug)]
pub(super) struct RowBatch<T> {
    rows: [Vec<T>; BATCH_ROWS],
    len: usize,
}

impl<T: Real> Default for RowBatch<T> {
    fn default() -> Self {
        Self { rows: std::array::from_fn(|_| Vec::new()), len: 0 }
    }
}

impl<T: Real> RowBatch<T> {
    /// Whether no more rows fit.
    pub(super) const fn is_full(&self) -> bool {
        self.len == BATCH_ROWS
    }

    /// Number of columns.
    fn column_count(&self) -> usize {
        self.rows[0].len()
    }

    /// Adds a row, multiplied by `factor`.
    pub(super) fn push(&mut self, row: &[(u16, f32)], factor: f64) {
        let width = row.last().map_or(0, |(column, _)| usize::from(*column) + 1);
        if self.column_count() < width {
            self.rows.iter_mut().for_each(|row| row.resize(width, T::default()));
        }
        let target = &mut self.rows[self.len];
        for (column, amount) in row {
            target[usize::from(*column)] = T::from_f64(factor * f64::from(*amount));
        }
        self.len += 1;
    }

    /// The rows.
    pub(super) fn rows_mut(&mut self) -> &mut [Vec<T>] {
        &mut self.rows[..self.len]
    }

    /// Removes all rows.
    fn clear(&mut self) {
        for row in &mut self.rows[..self.len] {
            row.fill(T::default());
        }
        self.len = 0;
    }
}

/// A symmetric matrix. Its lower triangle is stored row by row.
#[derive(Clone, Debug, Default)]
pub(super) struct SymmetricMatrix<T> {
    n: usize,
    data: Vec<T>,
}

/// The index at which a row begins in the stored numbers.
const fn row_start(row: usize) -> usize {
    row * (row + 1) / 2
}

impl<T: Real> SymmetricMatrix<T> {
    /// A matrix of `n` rows of 0.
    pub(super) fn zero(n: usize) -> Self {
        Self { n, data: vec![T::default(); row_start(n)] }
    }

    /// Number of rows.
    pub(super) const fn len(&self) -> usize {
        self.n
    }

    /// The row at an index, up to the diagonal; empty if the matrix is smaller.
    pub(super) fn row(&self, index: usize) -> &[T] {
        self.data.get(row_start(index)..row_start(index + 1)).unwrap_or_default()
    }

    /// The same row, to be changed.
    pub(super) fn row_mut(&mut self, index: usize) -> &mut [T] {
        self.data.get_mut(row_start(index)..row_start(index + 1)).unwrap_or_default()
    }

    /// Adds `weight x row' x row` for each of the rows, and removes the rows from the batch.
    pub(super) fn add_products(&mut self, rows: &mut RowBatch<T>, weight: f64) {
        let n = rows.column_count();
        if n > self.n {
            self.n = n;
            self.data.resize(row_start(n), T::default());
        }
        let data = &mut self.data;
        run_with_wide_vectors(|| add_weighted_products(data, &rows.rows, T::from_f64(weight)));
        rows.clear();
    }

    /// Adds a matrix, times `weight`.
    pub(super) fn add_scaled(&mut self, matrix: &Self, weight: f64) {
        if matrix.n > self.n {
            self.n = matrix.n;
            self.data.resize(matrix.data.len(), T::default());
        }
        let (data, weight) = (&mut self.data, T::from_f64(weight));
        run_with_wide_vectors(|| {
            data.iter_mut()
                .zip(&matrix.data)
                .for_each(|(entry, addend)| *entry += weight * *addend);
        });
    }

    /// Multiplies the matrix by a number.
    pub(super) fn scale_by(&mut self, factor: f64) {
        let scalar = T::from_f64(factor);
        self.data.iter_mut().for_each(|entry| *entry *= scalar);
    }

    /// The product `y = A x` of this matrix `A` and a vector `x`.
    pub(super) fn multiply_vector(&self, vector: &[f64]) -> Vec<f64> {
        let mut product = vec![0.0; vector.len()];
        run_with_wide_vectors(|| {
            for i in 0..vector.len() {
                let row = self.row(i);
                let (mut sum, x_i) = (0.0, vector[i]);
                for (a_ij, x_j) in row.iter().zip(vector) {
                    sum += (*a_ij).into() * x_j;
                }
                for (a_ij, y_j) in row.iter().zip(&mut product[..i]) {
                    *y_j += (*a_ij).into() * x_i;
                }
                product[i] += sum;
            }
        });
        product
    }

    /// Sets a row and the column of the same index to 0.
    pub(super) fn clear_row_and_column(&mut self, index: usize) {
        self.row_mut(index).fill(T::default());
        for row in index + 1..self.n {
            self.data[row_start(row) + index] = T::default();
        }
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
fn add_weighted_products<T: Real>(data: &mut [T], rows: &[Vec<T>; BATCH_ROWS], weight: T) {
    let n = rows[0].len();
    for i in 0..n {
        let weighted_column: [T; BATCH_ROWS] = std::array::from_fn(|row| weight * rows[row][i]);
        let row_prefixes: [&[T]; BATCH_ROWS] = std::array::from_fn(|row| &rows[row][..=i]);
        let target = &mut data[row_start(i)..][..=i];
        for (j, entry) in target.iter_mut().enumerate() {
            let mut sum = T::default();
            for row in 0..BATCH_ROWS {
                sum += weighted_column[row] * row_prefixes[row][j];
            }
            *entry += sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_rows_are_added_and_places_cleared() {
        let mut rows = RowBatch::<f64>::default();
        rows.push(&[(0, 1.0), (2, 3.0)], 2.0);
        rows.push(&[(1, 1.0)], 1.0);
        let mut all = SymmetricMatrix::default();
        all.add_products(&mut rows, 0.5);
        assert_eq!(all.row(2), [6.0, 0.0, 18.0]);
        assert_eq!((all.row(1), all.row(3)), (&[0.0, 0.5][..], &[][..]));
        rows.push(&[(3, 1.0)], 1.0);
        all.add_products(&mut rows, 1.0);
        assert_eq!(all.row(3), [0.0, 0.0, 0.0, 1.0]);
        all.add_scaled(&all.clone(), 1.0);
        all.clear_row_and_column(0);
        assert_eq!((all.row(0), all.row(2)), (&[0.0][..], &[0.0, 0.0, 36.0][..]));
    }
}
