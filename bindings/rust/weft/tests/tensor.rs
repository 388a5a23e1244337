//! Tensors share memory with the program, and are not changed while a step uses them.
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use weft::{Desc, Dtype, Mode, Run, Status, Tensor};

#[test]
fn a_vector_is_moved_and_not_copied() -> weft::Result<()> {
    let elements = vec![1.0f32, 2.0, 3.0, 4.0];
    let address = elements.as_ptr();
    let mut tensor = Tensor::from_vec([2, 2], elements)?;
    assert_eq!(tensor.as_slice::<f32>()?.as_ptr(), address);
    assert_eq!(tensor.as_mut_slice::<f32>()?.as_ptr(), address);
    assert_eq!(tensor.desc(), Desc { dtype: Dtype::F32, dims: vec![2, 2] });
    Ok(())
}

#[test]
fn a_wrong_type_or_shape_is_refused() {
    let tensor = Tensor::from_vec([3], vec![1i32, 2, 3]).unwrap();
    assert_eq!(tensor.as_slice::<f32>().unwrap_err().status(), Status::Invalid);
    let error = Tensor::from_vec([2, 2], vec![1.0f32; 3]).unwrap_err();
    assert_eq!(error.text(), "an array of [2, 2] has 4 elements, found 3");
    assert_eq!(Tensor::from_vec([1 << 32; 2], Vec::<f32>::new()).unwrap_err().status(), Status::Invalid);
    assert_eq!(Tensor::zeros(&Desc::f32([1; 9])).unwrap_err().text(), "expected at most 8 dimensions, found 9");
}

/// Counts how often it is dropped.
struct Counted(Vec<f32>, Arc<AtomicUsize>);

impl AsRef<[f32]> for Counted {
    fn as_ref(&self) -> &[f32] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_owner_is_dropped_once_with_the_last_reference() -> weft::Result<()> {
    let drops = Arc::new(AtomicUsize::new(0));
    let tensor = Tensor::from_owner([2], Counted(vec![1.0, 2.0], drops.clone()))?;
    let clone = tensor.clone();
    drop(tensor);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    assert_eq!(clone.as_slice::<f32>()?, [1.0, 2.0]);
    drop(clone);
    assert_eq!(drops.load(Ordering::SeqCst), 1);

    Tensor::from_owner([3], Counted(vec![1.0, 2.0], drops.clone())).unwrap_err();
    assert_eq!(drops.load(Ordering::SeqCst), 2, "an owner that is refused is dropped");
    Ok(())
}

#[test]
fn shared_memory_can_only_be_read() -> weft::Result<()> {
    let mut tensor = Tensor::from_owner([2], Arc::<[f32]>::from(vec![1.0, 2.0]))?;
    assert_eq!(tensor.as_mut_slice::<f32>().unwrap_err().status(), Status::Invalid);
    Ok(())
}

#[test]
fn a_tensor_cannot_be_changed_while_a_step_uses_it() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    let mut run = Run::start(&plan)?;
    let [mut x, y] = support::batch()?;
    run.submit(&[&x, &y], Mode::Train, 1)?;
    assert_eq!(x.as_mut_slice::<f32>().unwrap_err().status(), Status::State);
    assert!(run.events().all(|event| event.is_ok()));
    x.as_mut_slice::<f32>()?[0] = 5.0;
    // A step that is refused does not keep its inputs.
    run.step(&[&x], Mode::Train).unwrap_err();
    run.submit(&[&x], Mode::Train, 2).unwrap_err();
    x.as_mut_slice::<f32>()?[0] = 6.0;
    Ok(())
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_become_tensors_and_views_without_copies() -> weft::Result<()> {
    use weft::ndarray::{array, Array2}; // the version of the crate

    let rows = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let address = rows.as_ptr();
    let mut tensor = Tensor::try_from(rows)?;
    assert_eq!(tensor.view::<f32>()?.as_ptr(), address);
    assert_eq!(tensor.view::<f32>()?.shape(), [2, 3]);
    tensor.view_mut::<f32>()?[[1, 0]] = 7.0;
    assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0, 3.0, 7.0, 5.0, 6.0]);

    let columns = Array2::from_shape_fn((2, 2), |(row, column)| (2 * row + column) as i32).reversed_axes();
    assert_eq!(Tensor::try_from(columns)?.as_slice::<i32>()?, [0, 2, 1, 3], "other orders are copied");
    Ok(())
}
