//! Measured times of a model, and descriptions of machines.
use std::path::Path;
use std::ptr::{null_mut, NonNull};
use std::time::Duration;

use weft_sys as sys;

use crate::error::{attempt, c_string, filled, initialized, text_of, Result};
use crate::model::Model;
use crate::path_text;

/// Medians of a node for one micro-batch, and the size of its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTimes {
    /// The name of the node.
    pub name: String,
    /// Forward pass
    pub forward: Duration,
    /// Gradients of the inputs
    pub input: Duration,
    /// Gradients of the parameters
    pub weight: Duration,
    /// Bytes of the output
    pub output_bytes: u64,
    /// Bytes that are kept for the backward pass
    pub stash_bytes: u64,
}

/// Measured times of the kernels of each node of a model.
pub struct Profile {
    raw: NonNull<sys::weft_profile>,
}

// Every function of a profile may be called on any thread.
unsafe impl Send for Profile {}
unsafe impl Sync for Profile {}

impl Drop for Profile {
    fn drop(&mut self) {
        unsafe { sys::weft_profile_free(self.raw.as_ptr()) }
    }
}

impl Profile {
    /// Runs every kernel of the model on random data. The model cannot be changed afterwards. `micro_batch_size` is that of the plans
    /// which use the profile.
    pub fn measure(model: &mut Model, micro_batch_size: u32, repeats: u32, threads: u32) -> Result<Profile> {
        Profile::measure_as(model, micro_batch_size, repeats, threads, "f32", "")
    }

    /// The same for plans with this precision, "f32" or "bf16", and with these nodes that have f32 then.
    pub fn measure_as(
        model: &mut Model,
        micro_batch_size: u32,
        repeats: u32,
        threads: u32,
        precision: &str,
        f32_nodes: &str,
    ) -> Result<Profile> {
        let (precision, f32_nodes) = (c_string(precision)?, c_string(f32_nodes)?);
        let mut config = unsafe { initialized(sys::weft_profile_config_init) };
        config.micro_batch_size = micro_batch_size;
        config.repeats = repeats;
        config.threads = threads;
        config.precision = precision.as_ptr();
        config.f32_nodes = f32_nodes.as_ptr();
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_profile_new(model.raw(), &config, &mut raw, err) })?;
        Ok(Profile::from_raw(raw))
    }

    /// Reads a file of [`Profile::save`].
    pub fn load(path: impl AsRef<Path>) -> Result<Profile> {
        let path = path_text(path)?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_profile_load(path.as_ptr(), &mut raw, err) })?;
        Ok(Profile::from_raw(raw))
    }

    pub(crate) fn from_raw(raw: *mut sys::weft_profile) -> Profile {
        Profile { raw: NonNull::new(raw).expect("a call that succeeds makes a profile") }
    }

    pub(crate) fn raw(&self) -> *const sys::weft_profile {
        self.raw.as_ptr()
    }

    /// Writes the profile as JSON and replaces the file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path)?;
        attempt(|err| unsafe { sys::weft_profile_save(self.raw(), path.as_ptr(), err) }).map(drop)
    }

    /// The times of all nodes.
    pub fn nodes(&self) -> Vec<NodeTimes> {
        let count = unsafe { sys::weft_profile_nodes(self.raw()) };
        (0..count).filter_map(|index| self.node(index)).collect()
    }

    fn node(&self, index: u32) -> Option<NodeTimes> {
        let times = unsafe { filled(|out| sys::weft_profile_node(self.raw(), index, out)).ok()? };
        let duration = |ns: i64| Duration::from_nanos(ns.max(0) as u64);
        Some(NodeTimes {
            name: unsafe { text_of(times.name) },
            forward: duration(times.forward_ns),
            input: duration(times.input_ns),
            weight: duration(times.weight_ns),
            output_bytes: times.output_bytes,
            stash_bytes: times.stash_bytes,
        })
    }
}

/// A description of machines and links: ranks, speeds, distances. `man weft-plan` describes the file.
pub struct Cluster {
    raw: NonNull<sys::weft_cluster>,
}

// The functions of a cluster may be called on any thread; only its end requires that no other thread uses it.
unsafe impl Send for Cluster {}
unsafe impl Sync for Cluster {}

impl Drop for Cluster {
    fn drop(&mut self) {
        unsafe { sys::weft_cluster_free(self.raw.as_ptr()) }
    }
}

impl Cluster {
    /// Reads a cluster file.
    pub fn load(path: impl AsRef<Path>) -> Result<Cluster> {
        let path = path_text(path)?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_cluster_load(path.as_ptr(), &mut raw, err) })?;
        Ok(Cluster { raw: NonNull::new(raw).expect("a call that succeeds makes a cluster") })
    }

    pub(crate) fn raw(&self) -> *const sys::weft_cluster {
        self.raw.as_ptr()
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        unsafe { sys::weft_cluster_ranks(self.raw()) }
    }
}
