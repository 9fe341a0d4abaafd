//! Measured points as a function: what is known of a cost, and how it is read between the points.
//!
//! The points stand in the program, so that a program is complete without the files its text named,
//! and two programs with equal tables are equal.
//!
//! **Reading.** The axes have an order, and the points are a tree in it: the values of the first
//! axis, below each the values of the second that were measured with it, and so on. A value is found from
//! the last axis to the first: on every axis linearly between the two neighbours, each read along its
//! own line of points. On a complete grid this is multilinear interpolation. A grid with holes is no
//! special case: every line is read with the points it has, so a hole is bridged along the last axis
//! that has one, and a line of one point has one value everywhere.
//!
//! The order of operations is fixed by the order of the axes, and a value between two neighbours never
//! leaves them by a rounding: at a point the result is the point's value to the bit, and between
//! points it is monotone.

use serde::{Deserialize, Serialize};

/// Most axes of a table: a reading costs two per axis, multiplied.
pub const MAX_AXES: usize = 6;

/// Most points of one table.
pub const MAX_POINTS: usize = 1_000_000;

/// Points and how to read beyond them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CTable {
    pub name: String,
    /// Names of the arguments, in order.
    pub axes: Vec<String>,
    /// One row a point: a coordinate for each axis, then the value; in ascending order of coordinates.
    pub points: Vec<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Outside::is_extend")]
    pub outside: Outside,
}

/// What a table says where nothing was measured on either side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outside {
    /// A line goes on as straight as between its last two points.
    #[default]
    Extend,
    /// A line goes on with its last value.
    Clamp,
    /// An error, if an argument is outside of all that was measured on its axis.
    Refuse,
}

impl Outside {
    pub const ALL: [Outside; 3] = [Outside::Extend, Outside::Clamp, Outside::Refuse];

    /// The name in program text.
    pub fn name(self) -> &'static str {
        match self {
            Outside::Extend => "extend",
            Outside::Clamp => "clamp",
            Outside::Refuse => "refuse",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    fn is_extend(&self) -> bool {
        *self == Outside::Extend
    }
}

/// Why a table has no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unread {
    /// Which argument.
    pub axis: usize,
    pub value: f64,
    /// The smallest and largest value of the axis.
    pub measured: (f64, f64),
}

impl Unread {
    /// For messages: "`tokens` is 7, and 8 to 64 were measured".
    pub fn describe(&self, table: &CTable) -> String {
        let name = table.axes.get(self.axis).map_or("", String::as_str);
        let (low, high) = self.measured;
        format!("`{name}` is {}, and {low} to {high} were measured", self.value)
    }
}

/// A table prepared for reading: a few binary searches per value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// Per axis, the coordinates of all its lines, one line after the other.
    keys: Vec<Vec<f64>>,
    /// Per axis but the last: where the line below each coordinate begins on the next axis. One more
    /// than coordinates.
    below: Vec<Vec<u32>>,
    /// One for each coordinate of the last axis.
    values: Vec<f64>,
    /// Per axis, the smallest and largest coordinate.
    measured: Vec<(f64, f64)>,
    outside: Outside,
}

impl CTable {
    /// What is wrong with it, if anything; [`Grid::new`] asks for a table that is right.
    pub fn fault(&self) -> Option<String> {
        let axes = self.axes.len();
        if axes == 0 || axes > MAX_AXES {
            return Some(format!("{axes} axes; a table has 1 to {MAX_AXES}"));
        }
        if self.points.is_empty() || self.points.len() > MAX_POINTS {
            return Some(format!("{} points; a table has 1 to {MAX_POINTS}", self.points.len()));
        }
        if let Some(at) = self.points.iter().position(|p| p.len() != axes + 1) {
            return Some(format!("point {at} has not {axes} coordinates and a value"));
        }
        if let Some(at) = self.points.iter().position(|p| !p.iter().all(|v| v.is_finite())) {
            return Some(format!("point {at} has a number that is not finite"));
        }
        let ascending = |w: &[Vec<f64>]| before(&w[0][..axes], &w[1][..axes]);
        let at = self.points.windows(2).position(|w| !ascending(w))?;
        Some(format!("point {} does not come behind point {at}", at + 1))
    }
}

/// Whether one list of coordinates comes before another.
fn before(a: &[f64], b: &[f64]) -> bool {
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((x, y)) => x < y,
        None => false,
    }
}

impl Grid {
    /// Of a table without a [`CTable::fault`].
    pub fn new(table: &CTable) -> Grid {
        let axes = table.axes.len();
        let mut grid = Grid {
            keys: vec![Vec::new(); axes],
            below: vec![Vec::new(); axes.saturating_sub(1)],
            values: Vec::with_capacity(table.points.len()),
            measured: vec![(f64::INFINITY, f64::NEG_INFINITY); axes],
            outside: table.outside,
        };
        let mut last: Option<&[f64]> = None;
        for point in &table.points {
            // The first axis on which this point leaves the lines of the one before.
            let new = last.map_or(0, |l| l.iter().zip(point).take_while(|(x, y)| x == y).count());
            for axis in new..axes {
                if axis + 1 < axes {
                    let start = grid.keys[axis + 1].len() as u32;
                    grid.below[axis].push(start);
                }
                grid.keys[axis].push(point[axis]);
                let (low, high) = grid.measured[axis];
                grid.measured[axis] = (low.min(point[axis]), high.max(point[axis]));
            }
            grid.values.push(point[axes]);
            last = Some(&point[..axes]);
        }
        for axis in 0..axes.saturating_sub(1) {
            let end = grid.keys[axis + 1].len() as u32;
            grid.below[axis].push(end);
        }
        grid
    }

    /// Number of arguments.
    pub fn axes(&self) -> usize {
        self.keys.len()
    }

    /// The value at a place, given with as many coordinates as there are axes.
    pub fn value(&self, at: &[f64]) -> Result<f64, Unread> {
        for (axis, &value) in at.iter().enumerate() {
            let measured = self.measured[axis];
            let off =
                self.outside == Outside::Refuse && !(measured.0..=measured.1).contains(&value);
            if !value.is_finite() || off {
                return Err(Unread { axis, value, measured });
            }
        }
        Ok(self.read(0, 0, self.keys[0].len(), at))
    }

    /// Along the line `from..to` of an axis.
    fn read(&self, axis: usize, from: usize, to: usize, at: &[f64]) -> f64 {
        let (k, part) = self.place(&self.keys[axis][from..to], at[axis]);
        let low = self.line(axis, from + k, at);
        if part == 0.0 {
            return low;
        }
        let high = self.line(axis, from + k + 1, at);
        let value = low + (high - low) * part;
        if part > 0.0 && part < 1.0 {
            return value.max(low.min(high)).min(low.max(high));
        }
        value
    }

    /// What a coordinate has below it.
    fn line(&self, axis: usize, key: usize, at: &[f64]) -> f64 {
        match self.below.get(axis) {
            Some(below) => self.read(axis + 1, below[key] as usize, below[key + 1] as usize, at),
            None => self.values[key],
        }
    }

    /// The coordinate a value is read from, and which part of the way to the next; not from 0 to 1
    /// beyond the ends of the line.
    fn place(&self, keys: &[f64], value: f64) -> (usize, f64) {
        let behind = keys.partition_point(|k| *k <= value);
        let last = keys.len() - 1;
        let inside = behind > 0 && behind <= last;
        if last == 0 || keys.get(behind.wrapping_sub(1)) == Some(&value) {
            return (behind.saturating_sub(1), 0.0);
        }
        if !inside && self.outside != Outside::Extend {
            return (if behind == 0 { 0 } else { last }, 0.0);
        }
        let k = behind.saturating_sub(1).min(last - 1);
        (k, (value - keys[k]) / (keys[k + 1] - keys[k]))
    }
}

#[cfg(test)]
mod tests;
