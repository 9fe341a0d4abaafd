//! Lists that know what of them was changed.
//!
//! What holds after every event is checked after every event in debug builds, and that must not cost a
//! look at everything. So the state that predicates speak of is kept in [`Slots`]: whoever changes an element
//! borrows it through one, and there its number is noted. What no number was noted of is as it was, and
//! what was said of it still holds. In release builds a list is a vector and nothing else.

use std::ops::{Deref, Index, IndexMut};

#[cfg(debug_assertions)]
use std::cell::Cell;

// Nothing but a vector in a release build.
#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Slots<u8>>() == size_of::<Vec<u8>>());

/// A vector whose elements are changed by number, or all of them.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T> {
    items: Vec<T>,
    #[cfg(debug_assertions)]
    touched: Touched,
}

impl<T> Slots<T> {
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        #[cfg(debug_assertions)]
        self.touched.note(self.items.len());
        self.items.push(item);
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        if at < self.items.len() { Some(&mut self[at]) } else { None }
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        #[cfg(debug_assertions)]
        (0..self.items.len()).for_each(|at| self.touched.note(at));
        self.items.iter_mut()
    }

    /// Elements lent for change, or new, since the last call, each once.
    #[cfg(debug_assertions)]
    pub(crate) fn touched(&mut self) -> Vec<u32> {
        let mut list = Vec::new();
        self.touched.take(&mut list);
        list
    }

    /// The same into a list that is used again and again.
    #[cfg(debug_assertions)]
    pub(crate) fn touched_into(&mut self, list: &mut Vec<u32>) {
        self.touched.take(list);
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<T> From<Vec<T>> for Slots<T> {
    fn from(items: Vec<T>) -> Self {
        #[cfg(debug_assertions)]
        let touched = Touched::all(items.len());
        Self {
            items,
            #[cfg(debug_assertions)]
            touched,
        }
    }
}

impl<T> FromIterator<T> for Slots<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::from(items.into_iter().collect::<Vec<T>>())
    }
}

impl<T> Deref for Slots<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> Index<usize> for Slots<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.items[at]
    }
}

impl<T> IndexMut<usize> for Slots<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        #[cfg(debug_assertions)]
        self.touched.note(at);
        &mut self.items[at]
    }
}

impl<'a, T> IntoIterator for &'a Slots<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Slots<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// Numbers, each once, in the order in which they were first noted.
#[cfg(debug_assertions)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    noted: Vec<bool>,
    list: Vec<u32>,
}

#[cfg(debug_assertions)]
impl Touched {
    fn all(count: usize) -> Self {
        Self { noted: vec![true; count], list: (0..count as u32).collect() }
    }

    #[inline]
    pub(crate) fn note(&mut self, at: usize) {
        if at >= self.noted.len() {
            self.noted.resize(at + 1, false);
        }
        if !self.noted[at] {
            self.noted[at] = true;
            self.list.push(at as u32);
        }
    }

    /// Hands them out in place of what is in `list`, and begins anew.
    pub(crate) fn take(&mut self, list: &mut Vec<u32>) {
        list.clear();
        std::mem::swap(&mut self.list, list);
        list.iter().for_each(|at| self.noted[*at as usize] = false);
    }
}

/// A list that only grows, and so is known by how much of it was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Tail<T> {
    items: Vec<T>,
    #[cfg(debug_assertions)]
    seen: Cell<usize>,
}

impl<T> Tail<T> {
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// How much of it an earlier call found, of one list: 0 the first time.
    #[cfg(debug_assertions)]
    pub(crate) fn see(&self) -> usize {
        self.seen.replace(self.items.len())
    }
}

impl<T> From<Vec<T>> for Tail<T> {
    fn from(items: Vec<T>) -> Self {
        Self {
            items,
            #[cfg(debug_assertions)]
            seen: Cell::new(0),
        }
    }
}

impl<T> Deref for Tail<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.items
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::{Slots, Tail};

    /// Every way to change an element notes it, and no way to read one does.
    #[test]
    fn what_was_lent_for_change_is_known_once() {
        let mut slots: Slots<u32> = (0..5).collect();
        assert_eq!(slots.touched(), [0, 1, 2, 3, 4]);
        assert_eq!(slots[2] + slots.iter().sum::<u32>() + (&slots).into_iter().sum::<u32>(), 22);
        assert_eq!(slots.touched(), [] as [u32; 0]);
        slots[3] += 1;
        slots[1] = 7;
        slots[3] += 1;
        slots.push(9);
        assert_eq!((slots.touched(), slots.len()), (vec![3, 1, 5], 6));
        slots[3] += 1;
        assert_eq!(slots.touched(), [3]);
        for item in &mut slots {
            *item = 0;
        }
        assert_eq!(slots.touched(), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn of_a_list_that_grows_the_end_is_new() {
        let mut tail = Tail::from(vec![1, 2]);
        assert_eq!((tail.see(), tail.see()), (0, 2));
        tail.push(3);
        assert_eq!((tail.see(), tail.see(), tail[2]), (2, 3, 3));
    }
}
