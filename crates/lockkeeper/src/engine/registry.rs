//! Values of which there is one for each name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::Name;

/// One value for each name, for as long as it is used.
#[derive(Debug)]
pub(crate) struct Registry<T>(Mutex<HashMap<Name, Weak<T>>>);

impl<T> Default for Registry<T> {
    fn default() -> Registry<T> {
        Registry(Mutex::default())
    }
}

impl<T> Registry<T> {
    fn values(&self) -> MutexGuard<'_, HashMap<Name, Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a name, made if there is none.
    pub fn get_or_make(&self, name: &Name, make: impl FnOnce() -> T) -> Arc<T> {
        let mut values = self.values();
        if let Some(value) = values.get(name).and_then(Weak::upgrade) {
            return value;
        }
        let value = Arc::new(make());
        values.insert(name.clone(), Arc::downgrade(&value));
        value
    }

    /// The value of a name, if there is one.
    pub fn get(&self, name: &Name) -> Option<Arc<T>> {
        self.values().get(name).and_then(Weak::upgrade)
    }

    /// All values.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.values().values().filter_map(Weak::upgrade).collect()
    }

    /// Forgets a name whose value is being dropped.
    pub fn forget(&self, name: &Name) {
        let mut values = self.values();
        // A new value of the same name may have been made meanwhile.
        if values.get(name).is_some_and(|v| v.strong_count() == 0) {
            values.remove(name);
        }
    }
}
