use std::collections::HashMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{array, decode, failure, ours};
use crate::payload::Tensor;

fn f32s(shape: &[u64], elements: &[f32]) -> Vec<u8> {
    array("float32", shape, &elements.iter().flat_map(|element| element.to_le_bytes()).collect::<Vec<_>>())
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Batch {
    images: Tensor,
    labels: Vec<i64>,
}

#[test]
fn an_array_is_read_as_nested_sequences() {
    let matrix = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(decode::<Vec<Vec<f32>>>(&matrix).unwrap(), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    assert_eq!(decode::<Vec<[f64; 3]>>(&matrix).unwrap(), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    assert_eq!(decode::<serde_json::Value>(&matrix).unwrap(), json!([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]));
    assert_eq!(decode::<(f32, f64)>(&f32s(&[2], &[0.5, 1.5])).unwrap(), (0.5, 1.5));
    assert_eq!(decode::<f64>(&f32s(&[], &[0.5])).unwrap(), 0.5);
    assert_eq!(decode::<Vec<f32>>(&f32s(&[0], &[])).unwrap(), [0.0; 0]);
    assert_eq!(decode::<Vec<Vec<f32>>>(&f32s(&[2, 0], &[])).unwrap(), [[0.0; 0]; 2]);
    let nested = [&b"\x81\xa1w"[..], &matrix].concat();
    assert_eq!(decode::<HashMap<String, Vec<Vec<f32>>>>(&nested).unwrap()["w"][1][2], 6.0);
    assert_eq!(decode::<Option<Vec<Option<f32>>>>(&f32s(&[1], &[2.0])).unwrap(), Some(vec![Some(2.0)]));
}

#[test]
fn elements_of_every_dtype_are_read() {
    assert_eq!(decode::<Vec<i8>>(&array("int8", &[2], b"\xff\x01")).unwrap(), [-1, 1]);
    assert_eq!(decode::<Vec<i64>>(&array("int16", &[1], b"\xfe\xff")).unwrap(), [-2]);
    assert_eq!(decode::<Vec<i64>>(&array("int32", &[1], b"\xfe\xff\xff\xff")).unwrap(), [-2]);
    assert_eq!(decode::<Vec<i32>>(&array("int64", &[1], b"\x07\0\0\0\0\0\0\0")).unwrap(), [7]);
    assert_eq!(decode::<Vec<u64>>(&array("uint8", &[2], b"\xff\x01")).unwrap(), [255, 1]);
    assert_eq!(decode::<Vec<u64>>(&array("uint16", &[1], b"\x01\x02")).unwrap(), [513]);
    assert_eq!(decode::<Vec<u64>>(&array("uint32", &[1], b"\x01\x02\0\0")).unwrap(), [513]);
    assert_eq!(decode::<Vec<u64>>(&array("uint64", &[1], &[255; 8])).unwrap(), [u64::MAX]);
    assert_eq!(decode::<Vec<bool>>(&array("bool", &[3], b"\0\x01\x02")).unwrap(), [false, true, true]);
    assert_eq!(decode::<Vec<f64>>(&array("float64", &[1], &1.5_f64.to_le_bytes())).unwrap(), [1.5]);
    assert_eq!(decode::<Vec<f32>>(&array("float16", &[2], b"\0\x3c\0\xc0")).unwrap(), [1.0, -2.0]);
    assert_eq!(decode::<Vec<f32>>(&array("bfloat16", &[1], b"\xc0\x3f")).unwrap(), [1.5]);
    let complex: Vec<u8> = [1.0_f32, -1.0].iter().flat_map(|part| part.to_le_bytes()).collect();
    assert_eq!(decode::<Vec<(f32, f32)>>(&array("complex64", &[1], &complex)).unwrap(), [(1.0, -1.0)]);
    assert_eq!(decode::<Vec<u8>>(&array("uint8", &[2], b"ab")).unwrap(), b"ab");
    assert_eq!(decode::<Bytes>(&array("uint8", &[2], b"ab")).unwrap(), &b"ab"[..]);
}

#[test]
fn a_wrong_element_or_shape_has_a_path() {
    let vector = f32s(&[3], &[1.0, 2.5, 3.0]);
    assert_eq!(
        failure::<Vec<i32>>(&vector),
        ("[0]".into(), "expected i32, found the float 1.0 in an array float32[3]".into())
    );
    assert_eq!(failure::<f32>(&vector).1, "expected f32, found an array float32[3]");
    assert_eq!(failure::<[f32; 2]>(&vector).1, "expected 2 elements, found an array float32[3]");
    assert_eq!(failure::<String>(&vector).1, "expected a string, found an array float32[3]");
    let nested = [&b"\x81\xa1w"[..], &f32s(&[1, 2], &[1.0, 2.0])].concat();
    assert_eq!(failure::<HashMap<String, Vec<Vec<bool>>>>(&nested).0, ".w[0][0]");
}

#[test]
fn a_malformed_array_is_an_error() {
    for bytes in [
        array("float32", &[2], b"\0\0\0\0"),
        array("float32", &[u64::MAX], b""),
        array("float32", &[1 << 62, 1 << 62], b""),
        array("float8_e4m3fn", &[3], b"\0\0\0\0"),
        array("float32", &[1; 65], b"\0\0\0\0"),
        b"\xd4\x01\x92".to_vec(),
        b"\xc7\x00\x01".to_vec(),
        b"\xc7\x07\x01\x92\xa4bool\xff".to_vec(),
    ] {
        assert!(
            failure::<Tensor>(&bytes).1.contains("malformed array")
                || failure::<Tensor>(&bytes).1.contains("MessagePack")
        );
        failure::<serde_json::Value>(&bytes);
        failure::<Vec<f32>>(&bytes);
    }
    // The array is empty, so its bytes do not bound the number of its rows.
    let rows = array("float32", &[1 << 40, 0], b"");
    assert!(failure::<Vec<Vec<f32>>>(&rows).1.contains("MiB of memory"));
    assert_eq!(decode::<Tensor>(&rows).unwrap().shape(), [1 << 40, 0]);
}

#[test]
fn a_tensor_shares_the_frame_and_is_encoded_as_it_was_decoded() {
    let frame = Bytes::from(f32s(&[2, 1], &[1.0, 2.0]));
    let tensor: Tensor = crate::payload::value::decode(&frame).unwrap();
    assert_eq!(tensor.bytes().as_ptr(), frame[frame.len() - 8..].as_ptr());
    assert_eq!(tensor.dtype(), "float32");
    assert_eq!(tensor.shape(), &[2, 1][..]);
    assert_eq!(decode::<Tensor>(&ours(&tensor)).unwrap(), tensor);

    let batch = Batch { images: tensor, labels: vec![1, 2] };
    assert_eq!(decode::<Batch>(&ours(&batch)).unwrap(), batch);
    assert_eq!(decode::<Vec<Option<Batch>>>(&ours(&[Some(batch)])).unwrap().len(), 1);

    let strange = array("float8_e4m3fn", &[3], b"abc");
    assert_eq!(decode::<Tensor>(&strange).unwrap().dtype(), "float8_e4m3fn");
    assert!(failure::<Vec<f32>>(&strange).1.contains("dtype float8_e4m3fn"));
}

#[test]
fn a_tensor_of_parts_that_do_not_match_is_refused() {
    assert_eq!(Tensor::new("float32", [2], vec![0; 8]).unwrap().to_vec::<f32>().unwrap(), [0.0; 2]);
    for (dtype, shape, bytes) in [("float32", 2, 7), ("complex128", 1, 8), ("unheard", 3, 4)] {
        assert!(Tensor::new(dtype, [shape], vec![0; bytes]).is_err(), "{dtype}");
    }
    let error = Tensor::from_elements([2, 2], &[1_u8]).unwrap_err();
    assert_eq!(error.message(), "an array uint8[2, 2] cannot be made of 1 elements");
    let error = Tensor::from_elements([1], &[1_i64]).unwrap().to_vec::<f32>().unwrap_err();
    assert_eq!(error.message(), "expected an array of float32, found an array int64[1]");
    let flags = Tensor::from_elements([2], &[true, false]).unwrap();
    assert_eq!(&flags.bytes()[..], &[1, 0][..]);
    assert_eq!(flags.to_vec::<bool>().unwrap(), vec![true, false]);
}

#[test]
fn only_an_array_becomes_a_tensor() {
    assert_eq!(failure::<Tensor>(b"\x92\x01\x02").1, "expected an array, found a list of 2");
    assert_eq!(failure::<Vec<Tensor>>(b"\x91\xc0"), ("[0]".into(), "expected an array, found None".into()));
    // A tensor survives another format.
    let tensor = Tensor::from_elements([2], &[1_u16, 2]).unwrap();
    let text = serde_json::to_string(&tensor).unwrap();
    assert_eq!(serde_json::from_str::<Tensor>(&text).unwrap(), tensor);
    assert!(serde_json::from_str::<Tensor>("null").is_err());
}

#[cfg(feature = "ndarray")]
mod ndarray_arrays {
    use ndarray::{Axis, Ix1, Ix2, IxDyn, Slice, array};

    use super::*;
    use crate::payload::Array;

    #[test]
    fn arrays_of_any_layout_are_encoded_and_decoded() {
        let matrix = array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let bytes = ours(&Array::from(matrix.clone()));
        assert_eq!(
            decode::<Tensor>(&bytes).unwrap(),
            Tensor::from_elements([2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()
        );
        assert_eq!(decode::<Array<f32, Ix2>>(&bytes).unwrap().into_inner(), matrix);
        assert_eq!(decode::<Array<f32, IxDyn>>(&bytes).unwrap().shape(), [2, 3]);

        let transposed = matrix.clone().reversed_axes();
        assert_eq!(decode::<Array<f32, Ix2>>(&ours(&Array::from(transposed.clone()))).unwrap().0, transposed);
        let mut strided = matrix;
        strided.slice_axis_inplace(Axis(1), Slice::from(..).step_by(2));
        assert_eq!(decode::<Array<f32, Ix2>>(&ours(&Array::from(strided.clone()))).unwrap().0, strided);
        let scalar = ndarray::arr0(true);
        assert_eq!(decode::<Array<bool, ndarray::Ix0>>(&ours(&Array::from(scalar.clone()))).unwrap().0, scalar);
    }

    #[test]
    fn dtype_and_dimensions_are_checked() {
        let vector = Array::from(array![1_i64, 2, 3]);
        let bytes = [&b"\x81\xa1w\x91"[..], &ours(&vector)].concat();
        assert_eq!(
            failure::<HashMap<String, Vec<Array<f32, Ix1>>>>(&bytes),
            (".w[0]".into(), "expected an array float32 of 1 dimension, found an array int64[3]".into())
        );
        assert_eq!(
            failure::<Array<i64, Ix2>>(&ours(&vector)).1,
            "expected an array int64 of 2 dimensions, found an array int64[3]"
        );
        assert_eq!(failure::<Array<i64, Ix1>>(b"\x91\x01").1, "expected an array, found a list of 1");
        let error = Array::<u8, Ix1>::try_from(Tensor::from(vector)).unwrap_err();
        assert_eq!(error.message(), "expected an array uint8 of 1 dimension, found an array int64[3]");
    }
}
