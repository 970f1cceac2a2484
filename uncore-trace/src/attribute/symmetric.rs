//! Symmetric matrices: sums of products of the use of places.

use std::ops::{AddAssign, Mul, MulAssign};

use super::wide::wide;

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

/// Rows whose products are added together.
pub(super) const TOGETHER: usize = 8;

/// Some rows by place, all of the same length.
#[derive(Clone, Debug)]
pub(super) struct Rows<T> {
    rows: [Vec<T>; TOGETHER],
    len: usize,
}

impl<T: Real> Default for Rows<T> {
    fn default() -> Self {
        Self { rows: std::array::from_fn(|_| Vec::new()), len: 0 }
    }
}

impl<T: Real> Rows<T> {
    /// Whether no more rows fit.
    pub(super) const fn is_full(&self) -> bool {
        self.len == TOGETHER
    }

    /// Number of places.
    fn places(&self) -> usize {
        self.rows[0].len()
    }

    /// Adds a row, multiplied by `by`.
    pub(super) fn push(&mut self, row: &[(u16, f32)], by: f64) {
        let most = row.last().map_or(0, |(place, _)| usize::from(*place) + 1);
        if self.places() < most {
            self.rows.iter_mut().for_each(|row| row.resize(most, T::default()));
        }
        let to = &mut self.rows[self.len];
        for (place, amount) in row {
            to[usize::from(*place)] = T::from_f64(by * f64::from(*amount));
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

/// A symmetric matrix. Row after row of its lower half is stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Symmetric<T> {
    n: usize,
    data: Vec<T>,
}

/// Where a row begins.
const fn begin(row: usize) -> usize {
    row * (row + 1) / 2
}

impl<T: Real> Symmetric<T> {
    /// A matrix of `n` rows of 0.
    pub(super) fn zero(n: usize) -> Self {
        Self { n, data: vec![T::default(); begin(n)] }
    }

    /// Number of rows.
    pub(super) const fn len(&self) -> usize {
        self.n
    }

    /// The row of a place, up to the diagonal; empty if the matrix is smaller.
    pub(super) fn row(&self, place: usize) -> &[T] {
        self.data.get(begin(place)..begin(place + 1)).unwrap_or_default()
    }

    /// The same to write.
    pub(super) fn row_mut(&mut self, place: usize) -> &mut [T] {
        self.data.get_mut(begin(place)..begin(place + 1)).unwrap_or_default()
    }

    /// Adds `weight x row x row'` for each of the rows, and removes them.
    pub(super) fn add(&mut self, rows: &mut Rows<T>, weight: f64) {
        let n = rows.places();
        if n > self.n {
            self.n = n;
            self.data.resize(begin(n), T::default());
        }
        let of = &mut self.data;
        wide(|| products(of, &rows.rows, T::from_f64(weight)));
        rows.clear();
    }

    /// Adds another matrix, times `weight`.
    pub(super) fn add_all(&mut self, other: &Self, weight: f64) {
        if other.n > self.n {
            self.n = other.n;
            self.data.resize(other.data.len(), T::default());
        }
        let (of, weight) = (&mut self.data, T::from_f64(weight));
        wide(|| of.iter_mut().zip(&other.data).for_each(|(to, its)| *to += weight * *its));
    }

    /// Multiplies it.
    pub(super) fn scale(&mut self, by: f64) {
        let by = T::from_f64(by);
        self.data.iter_mut().for_each(|its| *its *= by);
    }

    /// The product with a vector.
    pub(super) fn times(&self, vector: &[f64]) -> Vec<f64> {
        let mut product = vec![0.0; vector.len()];
        wide(|| {
            for at in 0..vector.len() {
                let row = self.row(at);
                let (mut sum, by) = (0.0, vector[at]);
                for (its, other) in row.iter().zip(vector) {
                    sum += (*its).into() * other;
                }
                for (its, to) in row.iter().zip(&mut product[..at]) {
                    *to += (*its).into() * by;
                }
                product[at] += sum;
            }
        });
        product
    }

    /// Sets all that a place is in to 0.
    pub(super) fn clear(&mut self, place: usize) {
        self.row_mut(place).fill(T::default());
        for row in place + 1..self.n {
            self.data[begin(row) + place] = T::default();
        }
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is not compiled for AVX2")]
fn products<T: Real>(of: &mut [T], rows: &[Vec<T>; TOGETHER], weight: T) {
    let n = rows[0].len();
    for place in 0..n {
        let its: [T; TOGETHER] = std::array::from_fn(|row| weight * rows[row][place]);
        let others: [&[T]; TOGETHER] = std::array::from_fn(|row| &rows[row][..=place]);
        let to = &mut of[begin(place)..][..=place];
        for (other, to) in to.iter_mut().enumerate() {
            let mut sum = T::default();
            for row in 0..TOGETHER {
                sum += its[row] * others[row][other];
            }
            *to += sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_rows_are_added_and_places_cleared() {
        let mut rows = Rows::<f64>::default();
        rows.push(&[(0, 1.0), (2, 3.0)], 2.0);
        rows.push(&[(1, 1.0)], 1.0);
        let mut all = Symmetric::default();
        all.add(&mut rows, 0.5);
        assert_eq!(all.row(2), [6.0, 0.0, 18.0]);
        assert_eq!((all.row(1), all.row(3)), (&[0.0, 0.5][..], &[][..]));
        rows.push(&[(3, 1.0)], 1.0);
        all.add(&mut rows, 1.0);
        assert_eq!(all.row(3), [0.0, 0.0, 0.0, 1.0]);
        all.add_all(&all.clone(), 1.0);
        all.clear(0);
        assert_eq!((all.row(0), all.row(2)), (&[0.0][..], &[0.0, 0.0, 36.0][..]));
    }
}
