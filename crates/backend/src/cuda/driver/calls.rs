//! The functions of NVRTC, cuBLASLt and cuDNN that this backend calls. They are looked up in the files that
//! [`load`](super::load) has chosen. cudarc would open these libraries under other names, for which the system may have
//! other versions. The types are cudarc's.

/// Declares functions of a library. A call panics if the library is missing or lacks the function.
macro_rules! functions {
    ($(mod $module:ident of $library:ident { $(fn $name:ident($($value:ident: $type:ty),* $(,)?) -> $result:ty;)* })*) => {$(
        #[allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]
        pub mod $module {
            #[allow(unused_imports)]
            use std::ffi::{c_char, c_int, c_void};
            use std::sync::OnceLock;

            pub use cudarc::$module::sys::*;

            use super::super::load::{Library, required};

            // Does not compile unless the type equals cudarc's declaration.
            $(const _: unsafe fn($($type),*) -> $result = cudarc::$module::sys::$name;

            pub unsafe fn $name($($value: $type),*) -> $result {
                static FOUND: OnceLock<unsafe extern "C" fn($($type),*) -> $result> = OnceLock::new();
                // SAFETY: the library's header declares this type, and the caller follows the library's rules.
                unsafe {
                    FOUND.get_or_init(|| required(Library::$library, stringify!($name)))($($value),*)
                }
            })*
        }
    )*};
}

functions! {
    mod nvrtc of Nvrtc {
        fn nvrtcCompileProgram(prog: nvrtcProgram, numOptions: c_int, options: *const *const c_char) -> nvrtcResult;
        fn nvrtcCreateProgram(
            prog: *mut nvrtcProgram, src: *const c_char, name: *const c_char, numHeaders: c_int,
            headers: *const *const c_char, includeNames: *const *const c_char,
        ) -> nvrtcResult;
        fn nvrtcDestroyProgram(prog: *mut nvrtcProgram) -> nvrtcResult;
        fn nvrtcGetCUBIN(prog: nvrtcProgram, cubin: *mut c_char) -> nvrtcResult;
        fn nvrtcGetCUBINSize(prog: nvrtcProgram, cubinSizeRet: *mut usize) -> nvrtcResult;
        fn nvrtcGetErrorString(result: nvrtcResult) -> *const c_char;
        fn nvrtcGetPTX(prog: nvrtcProgram, ptx: *mut c_char) -> nvrtcResult;
        fn nvrtcGetPTXSize(prog: nvrtcProgram, ptxSizeRet: *mut usize) -> nvrtcResult;
        fn nvrtcGetProgramLog(prog: nvrtcProgram, log: *mut c_char) -> nvrtcResult;
        fn nvrtcGetProgramLogSize(prog: nvrtcProgram, logSizeRet: *mut usize) -> nvrtcResult;
        fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> nvrtcResult;
    }
    mod cublaslt of CublasLt {
        fn cublasLtCreate(lightHandle: *mut cublasLtHandle_t) -> cublasStatus_t;
        fn cublasLtDestroy(lightHandle: cublasLtHandle_t) -> cublasStatus_t;
        fn cublasLtGetCudartVersion() -> usize;
        fn cublasLtGetVersion() -> usize;
        fn cublasLtMatmul(
            lightHandle: cublasLtHandle_t, computeDesc: cublasLtMatmulDesc_t, alpha: *const c_void, A: *const c_void,
            Adesc: cublasLtMatrixLayout_t, B: *const c_void, Bdesc: cublasLtMatrixLayout_t, beta: *const c_void,
            C: *const c_void, Cdesc: cublasLtMatrixLayout_t, D: *mut c_void, Ddesc: cublasLtMatrixLayout_t,
            algo: *const cublasLtMatmulAlgo_t, workspace: *mut c_void, workspaceSizeInBytes: usize,
            stream: cudaStream_t,
        ) -> cublasStatus_t;
        fn cublasLtMatmulAlgoCheck(
            lightHandle: cublasLtHandle_t, operationDesc: cublasLtMatmulDesc_t, Adesc: cublasLtMatrixLayout_t,
            Bdesc: cublasLtMatrixLayout_t, Cdesc: cublasLtMatrixLayout_t, Ddesc: cublasLtMatrixLayout_t,
            algo: *const cublasLtMatmulAlgo_t, result: *mut cublasLtMatmulHeuristicResult_t,
        ) -> cublasStatus_t;
        fn cublasLtMatmulAlgoGetHeuristic(
            lightHandle: cublasLtHandle_t, operationDesc: cublasLtMatmulDesc_t, Adesc: cublasLtMatrixLayout_t,
            Bdesc: cublasLtMatrixLayout_t, Cdesc: cublasLtMatrixLayout_t, Ddesc: cublasLtMatrixLayout_t,
            preference: cublasLtMatmulPreference_t, requestedAlgoCount: c_int,
            heuristicResultsArray: *mut cublasLtMatmulHeuristicResult_t, returnAlgoCount: *mut c_int,
        ) -> cublasStatus_t;
        fn cublasLtMatmulDescCreate(
            matmulDesc: *mut cublasLtMatmulDesc_t, computeType: cublasComputeType_t, scaleType: cudaDataType_t,
        ) -> cublasStatus_t;
        fn cublasLtMatmulDescDestroy(matmulDesc: cublasLtMatmulDesc_t) -> cublasStatus_t;
        fn cublasLtMatmulDescSetAttribute(
            matmulDesc: cublasLtMatmulDesc_t, attr: cublasLtMatmulDescAttributes_t, buf: *const c_void,
            sizeInBytes: usize,
        ) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceCreate(pref: *mut cublasLtMatmulPreference_t) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceDestroy(pref: cublasLtMatmulPreference_t) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceSetAttribute(
            pref: cublasLtMatmulPreference_t, attr: cublasLtMatmulPreferenceAttributes_t, buf: *const c_void,
            sizeInBytes: usize,
        ) -> cublasStatus_t;
        fn cublasLtMatrixLayoutCreate(
            matLayout: *mut cublasLtMatrixLayout_t, type_: cudaDataType, rows: u64, cols: u64, ld: i64,
        ) -> cublasStatus_t;
        fn cublasLtMatrixLayoutDestroy(matLayout: cublasLtMatrixLayout_t) -> cublasStatus_t;
    }
    mod cudnn of Cudnn {
        fn cudnnBackendCreateDescriptor(
            descriptorType: cudnnBackendDescriptorType_t, descriptor: *mut cudnnBackendDescriptor_t,
        ) -> cudnnStatus_t;
        fn cudnnBackendDestroyDescriptor(descriptor: cudnnBackendDescriptor_t) -> cudnnStatus_t;
        fn cudnnBackendExecute(
            handle: cudnnHandle_t, executionPlan: cudnnBackendDescriptor_t, variantPack: cudnnBackendDescriptor_t,
        ) -> cudnnStatus_t;
        fn cudnnBackendFinalize(descriptor: cudnnBackendDescriptor_t) -> cudnnStatus_t;
        fn cudnnBackendGetAttribute(
            descriptor: cudnnBackendDescriptor_t, attributeName: cudnnBackendAttributeName_t,
            attributeType: cudnnBackendAttributeType_t, requestedElementCount: i64, elementCount: *mut i64,
            arrayOfElements: *mut c_void,
        ) -> cudnnStatus_t;
        fn cudnnBackendSetAttribute(
            descriptor: cudnnBackendDescriptor_t, attributeName: cudnnBackendAttributeName_t,
            attributeType: cudnnBackendAttributeType_t, elementCount: i64, arrayOfElements: *const c_void,
        ) -> cudnnStatus_t;
        fn cudnnCreate(handle: *mut cudnnHandle_t) -> cudnnStatus_t;
        fn cudnnDestroy(handle: cudnnHandle_t) -> cudnnStatus_t;
        fn cudnnGetCudartVersion() -> usize;
        fn cudnnGetLastErrorString(message: *mut c_char, max_size: usize) -> ();
        fn cudnnGetVersion() -> usize;
        fn cudnnSetStream(handle: cudnnHandle_t, streamId: cudaStream_t) -> cudnnStatus_t;
    }
}
