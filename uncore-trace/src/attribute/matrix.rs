//! Dense linear algebra: Gram matrices of the use by columns, and equations with them.
//!
//! `matrixmultiply` multiplies matrices, with kernels for the vectors that the CPU has, and most of
//! the work of a Cholesky factor and of an inverse is made of such products, block by block. The
//! workers of the attributor are threads already, so nothing here starts any.
//!
//! On every CPU with fused multiply-add (on x86-64, FMA and AVX2) the results are the same to the
//! last bit, so a recording of one machine is divided in the same way on another. The kernels add
//! the products of an entry in their order, 256 at a time, each with one rounding. They differ only
//! in whether a factor of the product is rounded, and a factor of 1 or -1 rounds nothing: others are
//! not used.

use std::ops::{AddAssign, Mul, Range};

use matrixmultiply::{dgemm, sgemm};

use super::use_row::{ScaledRow, SlotAmount};

/// Adds `a A B` to `c C`. Takes the number of rows of `A`, of its columns, and of columns of `B`,
/// then `a`, `A`, `B`, `c` and `C`: of each matrix the first entry, and the distances between its
/// rows and between its columns.
type ProductKernel<T> = unsafe fn(
    usize,
    usize,
    usize,
    T,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    *mut T,
    isize,
    isize,
);

/// The numbers of a matrix: `f64`, or `f32` where many matrices are kept.
pub(super) trait Real: Copy + Default + From<f32> + AddAssign + Mul<Output = Self> {
    /// Multiplies matrices.
    const MULTIPLY: ProductKernel<Self>;
}

impl Real for f64 {
    const MULTIPLY: ProductKernel<Self> = dgemm;
}

impl Real for f32 {
    const MULTIPLY: ProductKernel<Self> = sgemm;
}

/// Whether a product is added or subtracted.
#[derive(Clone, Copy, Debug)]
enum Sign {
    Plus,
    Minus,
}

impl Sign {
    const fn factor(self) -> f32 {
        match self {
            Self::Plus => 1.0,
            Self::Minus => -1.0,
        }
    }
}

/// A part of a matrix, perhaps transposed.
#[derive(Clone, Copy, Debug)]
struct Submatrix<'a, T> {
    /// From its first entry on.
    entries: &'a [T],
    row_count: usize,
    column_count: usize,
    /// Distances between its rows and between its columns.
    strides: (usize, usize),
}

impl<T: Real> Submatrix<'_, T> {
    fn transpose(self) -> Self {
        let (row_count, column_count) = (self.column_count, self.row_count);
        Self { row_count, column_count, strides: (self.strides.1, self.strides.0), ..self }
    }

    /// A matrix of its entries, converted.
    fn convert_entries<U: Real>(self, convert: impl Fn(T) -> U) -> DenseMatrix<U> {
        let mut matrix = DenseMatrix::zero(self.row_count, self.column_count);
        for row in 0..self.row_count {
            let entries = self.entries[row * self.strides.0..].iter().step_by(self.strides.1);
            let target = matrix.row_mut(row).iter_mut().zip(entries);
            target.for_each(|(target, entry)| *target = convert(*entry));
        }
        matrix
    }

    /// The product with another matrix `B`.
    fn multiply(self, b: Self) -> DenseMatrix<T> {
        let mut product = DenseMatrix::zero(self.row_count, b.column_count);
        product.add_product(0, Sign::Plus, self, b);
        product
    }
}

/// A matrix, stored row by row.
#[derive(Clone, Debug, Default)]
pub(super) struct DenseMatrix<T> {
    row_count: usize,
    column_count: usize,
    entries: Vec<T>,
}

impl<T: Real> DenseMatrix<T> {
    /// A matrix of zeros.
    pub(super) fn zero(row_count: usize, column_count: usize) -> Self {
        Self { row_count, column_count, entries: vec![T::default(); row_count * column_count] }
    }

    /// Rows of use by slot, each multiplied by its factor. The columns are slots.
    pub(super) fn from_use(rows: &[ScaledRow]) -> Self {
        let end_slot = |scaled: &ScaledRow| scaled.row.last().map_or(0, |entry| entry.slot + 1);
        let slot_count = rows.iter().map(end_slot).max().map_or(0, usize::from);
        let mut matrix = Self::zero(rows.len(), slot_count);
        for (index, ScaledRow { row, factor }) in rows.iter().enumerate() {
            let target = matrix.row_mut(index);
            for SlotAmount { slot, amount } in &**row {
                target[usize::from(*slot)] = T::from((factor * f64::from(*amount)) as f32);
            }
        }
        matrix
    }

    /// Number of columns.
    pub(super) const fn column_count(&self) -> usize {
        self.column_count
    }

    /// The row at an index; empty if the matrix is smaller.
    pub(super) fn row(&self, index: usize) -> &[T] {
        let start = index * self.column_count;
        self.entries.get(start..start + self.column_count).unwrap_or_default()
    }

    /// The same row, to be changed.
    pub(super) fn row_mut(&mut self, index: usize) -> &mut [T] {
        let start = index * self.column_count;
        self.entries.get_mut(start..start + self.column_count).unwrap_or_default()
    }

    /// The entries of a column, to be changed; none if the matrix has fewer columns.
    pub(super) fn column_mut(&mut self, index: usize) -> impl Iterator<Item = &mut T> {
        let rows = self.entries.chunks_exact_mut(self.column_count.max(1));
        rows.filter_map(move |row| row.get_mut(index))
    }

    /// The entry at a row and a column; 0 if the matrix is smaller.
    pub(super) fn entry(&self, row: usize, column: usize) -> T {
        self.row(row).get(column).copied().unwrap_or_default()
    }

    fn submatrix(&self, rows: Range<usize>, columns: Range<usize>) -> Submatrix<'_, T> {
        assert!(rows.end <= self.row_count && columns.end <= self.column_count);
        let first = rows.start * self.column_count + columns.start;
        Submatrix {
            entries: self.entries.get(first..).unwrap_or_default(),
            row_count: rows.len(),
            column_count: columns.len(),
            strides: (self.column_count, 1),
        }
    }

    /// The whole matrix.
    fn whole(&self) -> Submatrix<'_, T> {
        self.submatrix(0..self.row_count, 0..self.column_count)
    }

    /// Replaces the entries from a row and a column on.
    fn replace_submatrix(&mut self, first_row: usize, first_column: usize, entries: &Self) {
        for index in 0..entries.row_count {
            let row = &mut self.row_mut(first_row + index)[first_column..];
            row[..entries.column_count].copy_from_slice(entries.row(index));
        }
    }

    /// Adds `A B` or `-A B` to the rows from `first_row` on.
    fn add_product(
        &mut self,
        first_row: usize,
        sign: Sign,
        a: Submatrix<'_, T>,
        b: Submatrix<'_, T>,
    ) {
        let (row_count, column_count) = (a.row_count, b.column_count);
        assert_eq!(a.column_count, b.row_count);
        if row_count == 0 || a.column_count == 0 || column_count == 0 {
            return;
        }
        for factor in [a, b] {
            let last_row = (factor.row_count - 1) * factor.strides.0;
            let last_column = (factor.column_count - 1) * factor.strides.1;
            assert!(last_row + last_column < factor.entries.len());
        }
        let stride = self.column_count;
        assert!(column_count <= stride && first_row + row_count <= self.row_count);
        let target = &mut self.entries[first_row * stride..];
        assert!((row_count - 1) * stride + column_count <= target.len());
        // SAFETY: the last entry of each matrix is the farthest from its first one, and the
        // assertions say that it is in the slice: those of `A` and `B` at their strides, that of
        // the target at `stride` and 1. Rows of the target do not overlap, because the product has
        // at most `stride` columns; `A` and `B` do not overlap it, because it is borrowed mutably.
        // No stride is longer than its slice, so each is a positive `isize`.
        #[expect(unsafe_code, reason = "matrixmultiply takes pointers")]
        unsafe {
            T::MULTIPLY(
                row_count,
                a.column_count,
                column_count,
                T::from(sign.factor()),
                a.entries.as_ptr(),
                a.strides.0 as isize,
                a.strides.1 as isize,
                b.entries.as_ptr(),
                b.strides.0 as isize,
                b.strides.1 as isize,
                T::from(1.0),
                target.as_mut_ptr(),
                stride as isize,
                1,
            );
        }
    }

    /// Adds rows and columns of 0 to a square matrix that has fewer than `count`.
    fn grow_to(&mut self, count: usize) {
        if count > self.row_count {
            let smaller = std::mem::replace(self, Self::zero(count, count));
            self.replace_submatrix(0, 0, &smaller);
        }
    }

    /// Adds `rows' x rows`, the products of all pairs of columns. The matrix grows if it has fewer
    /// columns.
    pub(super) fn add_products(&mut self, rows: &Self) {
        self.grow_to(rows.column_count);
        self.add_product(0, Sign::Plus, rows.whole().transpose(), rows.whole());
    }

    /// The sum of square matrices, each times its weight, in a matrix of `count` rows. It is made
    /// row by row, so that the sums stay in the nearest cache.
    pub(super) fn weighted_sum(count: usize, addends: &[(&Self, T)]) -> Self {
        let mut sum = Self::zero(count, count);
        for index in 0..count {
            let sums_of_row = sum.row_mut(index);
            for (matrix, weight) in addends {
                let entries = sums_of_row.iter_mut().zip(matrix.row(index));
                entries.for_each(|(entry, addend)| *entry += *weight * *addend);
            }
        }
        sum
    }

    /// Multiplies the matrix by a number.
    pub(super) fn scale_by(&mut self, factor: T) {
        self.entries.iter_mut().for_each(|entry| *entry = factor * *entry);
    }

    /// Sets a row and the column of the same index to 0.
    pub(super) fn clear_row_and_column(&mut self, index: usize) {
        self.row_mut(index).fill(T::default());
        self.column_mut(index).for_each(|entry| *entry = T::default());
    }

    /// The product of a symmetric matrix and a vector: the sum of its rows, each times an entry of
    /// the vector. The crate would copy the matrix before it multiplies.
    pub(super) fn multiply_vector(&self, vector: &[T]) -> Vec<T> {
        let n = self.column_count.max(1);
        let mut product = vec![T::default(); self.column_count];
        let (quads, last_factors) = vector.as_chunks::<4>();
        let mut rows_by_four = self.entries.chunks_exact(4 * n);
        for (rows, [factor_a, factor_b, factor_c, factor_d]) in rows_by_four.by_ref().zip(quads) {
            let (pair, other_pair) = rows.split_at(2 * n);
            let rows_of_pair = pair[..n].iter().zip(&pair[n..]);
            let rows_of_both = rows_of_pair.zip(other_pair[..n].iter().zip(&other_pair[n..]));
            for (sum, ((a, b), (c, d))) in product.iter_mut().zip(rows_of_both) {
                let (mut sum_of_pair, mut other_sum) = (*a * *factor_a, *c * *factor_c);
                sum_of_pair += *b * *factor_b;
                other_sum += *d * *factor_d;
                sum_of_pair += other_sum;
                *sum += sum_of_pair;
            }
        }
        for (row, factor) in rows_by_four.remainder().chunks_exact(n).zip(last_factors) {
            product.iter_mut().zip(row).for_each(|(sum, entry)| *sum += *entry * *factor);
        }
        product
    }
}

impl DenseMatrix<f64> {
    /// The same matrix, rounded to `f32`.
    pub(super) fn to_f32(&self) -> DenseMatrix<f32> {
        self.whole().convert_entries(round_entry)
    }
}

/// The dot product of two vectors, in lanes that a vector unit adds at the same time.
pub(super) fn dot_product(left_vector: &[f64], right_vector: &[f64]) -> f64 {
    let (left_chunks, left_tail) = left_vector.as_chunks::<8>();
    let (right_chunks, right_tail) = right_vector[..left_vector.len()].as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (left_chunk, right_chunk) in left_chunks.iter().zip(right_chunks) {
        for lane in 0..8 {
            sums[lane] += left_chunk[lane] * right_chunk[lane];
        }
    }
    let tail_products = left_tail.iter().zip(right_tail).map(|(a, b)| a * b);
    sums.into_iter().chain(tail_products).sum()
}

/// When [`conjugate_gradient`] stops.
#[derive(Clone, Copy, Debug)]
pub(super) struct IterationLimits {
    /// The largest number of iterations.
    pub iterations: usize,
    /// The fraction of the squared residual at which it has converged.
    pub residual_fraction: f64,
}

/// Solves `A x = rhs` with a symmetric positive definite `A`. `product` multiplies it and a vector;
/// `diagonal` is that of `A`, the preconditioner (Shewchuk 1994, "An Introduction to the Conjugate
/// Gradient Method Without the Agonizing Pain", B3). `residual` is `rhs` at first.
pub(super) fn conjugate_gradient(
    product: impl Fn(&[f64], &mut [f64]),
    diagonal: &[f64],
    mut residual: Vec<f64>,
    limits: IterationLimits,
) -> Vec<f64> {
    let n = residual.len();
    let mut solution = vec![0.0; n];
    let mut preconditioned: Vec<f64> =
        residual.iter().zip(diagonal).map(|(r_i, d_i)| r_i / d_i).collect();
    let mut direction = preconditioned.clone();
    let mut image = vec![0.0; n];
    let mut residual_norm = dot_product(&residual, &preconditioned);
    let converged_norm = limits.residual_fraction * residual_norm;
    for _ in 0..limits.iterations {
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

/// `L^-1` of a symmetric positive definite matrix `L L'`.
///
/// The Cholesky factor `L` is computed in `f64`. Its condition number is only the square root of
/// the matrix's, so its inverse is computed in `f32`, in half of the time.
#[derive(Debug)]
pub(super) struct InverseFactor(DenseMatrix<f32>);

/// Number of columns of a block. The products of smaller ones are slower, and more of the work for
/// larger ones is no product.
const BLOCK_LEN: usize = 32;

impl InverseFactor {
    /// Factors a matrix, whose lower triangle is read; `None` if it is not positive definite.
    pub(super) fn factorize(mut matrix: DenseMatrix<f64>) -> Option<Self> {
        let n = matrix.row_count;
        let mut inverse = DenseMatrix::<f32>::zero(n, n);
        for start in (0..n).step_by(BLOCK_LEN) {
            let end = (start + BLOCK_LEN).min(n);
            // The columns of the block, less what the blocks before it explain.
            let mut panel = matrix.submatrix(start..n, start..end).convert_entries(|entry| entry);
            let block_before = matrix.submatrix(start..end, 0..start);
            let rows_before = matrix.submatrix(start..n, 0..start);
            panel.add_product(0, Sign::Minus, rows_before, block_before.transpose());
            let width = end - start;
            let inverse_block = invert_block_factor(panel.submatrix(0..width, 0..width))?;
            let rows_below = panel.submatrix(width..n - start, 0..width);
            let factor_below = rows_below.multiply(inverse_block.whole().transpose());
            matrix.replace_submatrix(end, start, &factor_below);
            // The rows of the inverse: `-B^-1 L W`, with the factor `B` of the block, the rows `L`
            // of the factor before it, and the rows `W` of the inverse so far.
            let factor_rows = matrix.submatrix(start..end, 0..start).convert_entries(round_entry);
            let product = factor_rows.whole().multiply(inverse.submatrix(0..start, 0..start));
            let inverse_block = inverse_block.whole().convert_entries(round_entry);
            inverse.add_product(start, Sign::Minus, inverse_block.whole(), product.whole());
            inverse.replace_submatrix(start, start, &inverse_block);
        }
        Some(Self(inverse))
    }

    /// The diagonal of the inverse: variances, if the matrix is a precision matrix.
    pub(super) fn inverse_diagonal(&self) -> Vec<f64> {
        let mut squares = vec![0.0; self.0.column_count];
        for index in 0..self.0.row_count {
            let entries = squares.iter_mut().zip(self.0.row(index));
            entries.for_each(|(sum, entry)| *sum += f64::from(*entry) * f64::from(*entry));
        }
        squares
    }

    /// The inverse of the matrix: `L'^-1 L^-1`.
    pub(super) fn invert(&self) -> DenseMatrix<f32> {
        let n = self.0.row_count;
        let mut inverse = DenseMatrix::zero(n, n);
        for start in (0..n).step_by(BLOCK_LEN) {
            let end = (start + BLOCK_LEN).min(n);
            let block_columns = self.0.submatrix(start..n, start..end);
            let columns = self.0.submatrix(start..n, 0..end);
            inverse.add_product(start, Sign::Plus, block_columns.transpose(), columns);
        }
        for row in 0..n {
            for column in 0..row {
                inverse.entries[column * n + row] = inverse.entries[row * n + column];
            }
        }
        inverse
    }
}

/// The nearest `f32`.
const fn round_entry(entry: f64) -> f32 {
    entry as f32
}

/// `L^-1` of a small matrix `L L'`; `None` if it is not positive definite.
fn invert_block_factor(block: Submatrix<'_, f64>) -> Option<DenseMatrix<f64>> {
    let n = block.row_count;
    let mut factor = block.convert_entries(|entry| entry);
    let mut inverse = DenseMatrix::zero(n, n);
    for index in 0..n {
        let (rows_before, row) = factor.entries.split_at_mut(index * n);
        for (column, row_before) in rows_before.chunks_exact(n).enumerate() {
            let explained = dot_product(&row[..column], &row_before[..column]);
            row[column] = (row[column] - explained) / row_before[column];
        }
        let remainder = row[index] - dot_product(&row[..index], &row[..index]);
        if remainder <= 0.0 || !remainder.is_finite() {
            return None;
        }
        let pivot = remainder.sqrt();
        row[index] = pivot;
        let (rows_before, inverse_row) = inverse.entries.split_at_mut(index * n);
        for (factor_entry, row_before) in row.iter().zip(rows_before.chunks_exact(n)) {
            let entries = inverse_row.iter_mut().zip(row_before);
            entries.for_each(|(entry, earlier)| *entry -= factor_entry / pivot * earlier);
        }
        inverse_row[index] = pivot.recip();
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    /// Amounts from 0 to 1 by tick and slot; each tick ends with a slot that is used.
    fn draw_rows(ticks: usize, slots: usize, random: &mut Rng) -> Vec<ScaledRow> {
        let mut draw_row = || {
            let mut draw_amount = |slot| SlotAmount { slot, amount: 0.01 + random.f32() };
            let row = (0..slots as u16).map(&mut draw_amount).collect();
            ScaledRow { row, factor: 1.0 }
        };
        (0..ticks).map(|_| draw_row()).collect()
    }

    fn multiply_amounts(rows: &[ScaledRow], first: usize, second: usize) -> f64 {
        let amount = |row: &ScaledRow, slot: usize| f64::from(row.row[slot].amount);
        rows.iter().map(|row| amount(row, first) * amount(row, second)).sum()
    }

    fn scaled_row(amounts: &[(u16, f32)], factor: f64) -> ScaledRow {
        let row = amounts.iter().map(|&(slot, amount)| SlotAmount { slot, amount }).collect();
        ScaledRow { row, factor }
    }

    /// A positive definite matrix.
    fn draw_matrix(n: usize, random: &mut Rng) -> DenseMatrix<f64> {
        let mut matrix = DenseMatrix::zero(n, n);
        matrix.add_products(&DenseMatrix::from_use(&draw_rows(n + 5, n, random)));
        (0..n).for_each(|index| matrix.row_mut(index)[index] += 0.5);
        matrix
    }

    fn has_fused_multiply_add() -> bool {
        #[cfg(target_arch = "x86_64")]
        let found = is_x86_feature_detected!("fma") && is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        let found = cfg!(target_arch = "aarch64");
        found
    }

    #[test]
    fn a_matrix_grows_and_slots_are_cleared() {
        let mut gram = DenseMatrix::<f64>::default();
        let rows = DenseMatrix::from_use(&[
            scaled_row(&[(0, 1.0), (2, 3.0)], 2.0),
            scaled_row(&[(1, 1.0)], 1.0),
        ]);
        gram.add_products(&rows);
        assert_eq!(gram.row(0), [4.0, 0.0, 12.0]);
        assert_eq!(gram.row(1), [0.0, 1.0, 0.0]);
        assert_eq!((gram.row(2), gram.row(3)), (&[12.0, 0.0, 36.0][..], &[][..]));
        gram.add_products(&DenseMatrix::from_use(&[scaled_row(&[(3, 1.0)], 1.0)]));
        assert_eq!((gram.row(3), gram.entry(2, 2)), (&[0.0, 0.0, 0.0, 1.0][..], 36.0));
        gram = DenseMatrix::weighted_sum(4, &[(&gram, 1.0), (&gram, 1.0)]);
        gram.clear_row_and_column(0);
        gram.clear_row_and_column(9);
        assert_eq!((gram.row(0), gram.row(2)), (&[0.0; 4][..], &[0.0, 0.0, 72.0, 0.0][..]));
        let diagonal: Vec<f64> = (0..4).map(|index| gram.entry(index, index)).collect();
        assert_eq!(diagonal, [0.0, 2.0, 72.0, 2.0]);
    }

    #[test]
    fn what_is_empty_or_not_finite_does_no_harm() {
        let mut empty = DenseMatrix::<f32>::default();
        empty.add_products(&DenseMatrix::from_use(&[]));
        assert!(empty.multiply_vector(&[]).is_empty());
        let factor = InverseFactor::factorize(DenseMatrix::zero(0, 0)).unwrap();
        assert_eq!((factor.invert().row_count, factor.inverse_diagonal().len()), (0, 0));
        let product = |_: &[f64], image: &mut [f64]| image.fill(f64::NAN);
        let limits = IterationLimits { iterations: 9, residual_fraction: 1e-3 };
        let solution = conjugate_gradient(product, &[1.0], vec![f64::NAN], limits);
        assert_eq!(solution, [0.0]);
    }

    #[test]
    #[should_panic(expected = "self.row_count")]
    fn a_product_does_not_leave_its_target() {
        let left = DenseMatrix::<f32>::zero(3, 2);
        let product = (left.whole(), left.whole().transpose());
        DenseMatrix::zero(3, 3).add_product(1, Sign::Plus, product.0, product.1);
    }

    #[test]
    #[should_panic(expected = "column_count <= stride")]
    fn a_product_is_not_wider_than_its_target() {
        let left = DenseMatrix::<f32>::zero(3, 2);
        let product = (left.whole(), left.whole().transpose());
        DenseMatrix::zero(9, 2).add_product(0, Sign::Plus, product.0, product.1);
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn a_product_needs_as_many_columns_as_rows() {
        let left = DenseMatrix::<f32>::zero(3, 2);
        left.whole().multiply(left.whole());
    }

    #[test]
    #[should_panic(expected = "row_count")]
    fn a_part_does_not_leave_its_matrix() {
        DenseMatrix::<f64>::zero(3, 2).submatrix(0..3, 1..3);
    }

    proptest! {
        #[test]
        fn products_are_those_of_each_pair_of_slots(
            ticks in 1..70usize, slots in 1..70usize, seed: u64,
        ) {
            let mut random = Rng::with_seed(seed);
            let rows = draw_rows(ticks, slots, &mut random);
            let mut gram = DenseMatrix::<f64>::zero(1, 1);
            let mut rounded = DenseMatrix::<f32>::zero(1, 1);
            gram.add_products(&DenseMatrix::from_use(&rows));
            rounded.add_products(&DenseMatrix::from_use(&rows));
            let vector: Vec<f64> = (0..slots).map(|_| random.f64()).collect();
            let image = gram.multiply_vector(&vector);
            let rounded_vector: Vec<f32> = vector.iter().map(|entry| *entry as f32).collect();
            let rounded_image = gram.to_f32().multiply_vector(&rounded_vector);
            for first in 0..slots {
                let row: Vec<f64> =
                    (0..slots).map(|second| multiply_amounts(&rows, first, second)).collect();
                for (second, product) in row.iter().enumerate() {
                    prop_assert!((gram.entry(first, second) - product).abs() < 1e-9);
                    let rounded_entry = f64::from(rounded.entry(first, second));
                    prop_assert!((rounded_entry - product).abs() < 1e-3);
                }
                let expected: f64 = row.iter().zip(&vector).map(|(a, b)| a * b).sum();
                prop_assert!((image[first] - expected).abs() < 1e-9);
                prop_assert!((f64::from(rounded_image[first]) - expected).abs() < 1e-2);
                prop_assert!((dot_product(&row, &vector) - expected).abs() < 1e-9);
            }
        }

        #[test]
        fn products_are_added_in_order_with_one_rounding_each(
            ticks in 1..600usize, slots in 1..40usize, seed: u64,
        ) {
            if !has_fused_multiply_add() {
                println!("skipped: this CPU has no fused multiply-add");
                return Ok(());
            }
            let rows = draw_rows(ticks, slots, &mut Rng::with_seed(seed));
            let mut gram = DenseMatrix::<f64>::default();
            let mut rounded = DenseMatrix::<f32>::default();
            gram.add_products(&DenseMatrix::from_use(&rows));
            rounded.add_products(&DenseMatrix::from_use(&rows));
            let mut difference = gram.clone();
            let product = DenseMatrix::from_use(&rows);
            difference.add_product(0, Sign::Minus, product.whole().transpose(), product.whole());
            for (first, second) in (0..slots).flat_map(|slot| [(slot, slot), (slot, slots - 1)]) {
                let sum_chunk = |chunk: &[ScaledRow]| {
                    let (mut sum, mut rounded_sum) = (0.0, 0.0);
                    for ScaledRow { row, .. } in chunk {
                        let (left, right) = (row[first].amount, row[second].amount);
                        sum = f64::from(left).mul_add(f64::from(right), sum);
                        rounded_sum = left.mul_add(right, rounded_sum);
                    }
                    (sum, rounded_sum)
                };
                let (sums, rounded_sums): (Vec<f64>, Vec<f32>) =
                    rows.chunks(256).map(sum_chunk).unzip();
                let sum = sums.iter().fold(0.0, |sum, chunk_sum| sum + chunk_sum);
                let rounded_sum = rounded_sums.iter().fold(0.0, |sum, chunk_sum| sum + chunk_sum);
                let remainder = sums.iter().fold(sum, |sum, chunk_sum| sum - chunk_sum);
                prop_assert_eq!(gram.entry(first, second).to_bits(), f64::to_bits(sum));
                prop_assert_eq!(rounded.entry(first, second).to_bits(), f32::to_bits(rounded_sum));
                prop_assert_eq!(difference.entry(first, second).to_bits(), f64::to_bits(remainder));
            }
        }

        #[test]
        fn an_inverse_times_its_matrix_is_the_identity(n in 1..100usize, seed: u64) {
            let mut random = Rng::with_seed(seed);
            let mut matrix = draw_matrix(n, &mut random);
            let factor = InverseFactor::factorize(matrix.clone()).unwrap();
            let (inverse, variances) = (factor.invert(), factor.inverse_diagonal());
            for i in 0..n {
                let row: Vec<f64> = inverse.row(i).iter().copied().map(f64::from).collect();
                for (j, entry) in matrix.multiply_vector(&row).into_iter().enumerate() {
                    prop_assert!((entry - f64::from(u8::from(i == j))).abs() < 1e-3);
                }
                prop_assert!((row[i] - variances[i]).abs() < 1e-5 * variances[i]);
            }
            let bad_index = random.usize(0..n);
            for bad_entry in [-1.0, f64::NAN, f64::INFINITY] {
                matrix.row_mut(bad_index)[bad_index] = bad_entry;
                prop_assert!(InverseFactor::factorize(matrix.clone()).is_none());
            }
        }

        #[test]
        fn what_is_solved_solves_the_equations(n in 1..40usize, seed: u64) {
            let mut random = Rng::with_seed(seed);
            let matrix = draw_matrix(n, &mut random);
            let rhs: Vec<f64> = (0..n).map(|_| random.f64() - 0.5).collect();
            let product =
                |x: &[f64], image: &mut [f64]| image.copy_from_slice(&matrix.multiply_vector(x));
            let diagonal: Vec<f64> = (0..n).map(|index| matrix.entry(index, index)).collect();
            let limits = IterationLimits { iterations: 400, residual_fraction: 1e-24 };
            let solution = conjugate_gradient(product, &diagonal, rhs.clone(), limits);
            for (image, expected) in matrix.multiply_vector(&solution).into_iter().zip(&rhs) {
                prop_assert!((image - expected).abs() < 1e-6);
            }
        }
    }
}
