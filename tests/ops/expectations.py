"""Operators of PyTorch's database that are not compared value by value, and why."""

# Draws numbers (some seed inside, so that even two CPU seeds agree): dtype and shape are compared.
RANDOM = {
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "normal",
    "normal.in_place",
    "normal.number_mean",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "uniform",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention",
    "pca_lowrank",
    "svd_lowrank",
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._efficient_attention_forward",
}
# Not written by anybody, or the content of fresh memory.
UNDEFINED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}
# Defined up to the sign of columns or rows: magnitudes are compared.
SIGN_FREE = {
    "geqrf",
    "linalg.eig",
    "linalg.eigh",
    "linalg.qr",
    "linalg.svd",
    "qr",
    "svd",
}
# Indices of equal values come in no defined order: only the values are compared.
TIES = {
    "argsort",
    "kthvalue",
    "median",
    "mode",
    "msort",
    "nanmedian",
    "sort",
    "topk",
    "unique",
}
# Refused with a clear error: (operator: part of the message).
REFUSED = {
    "chalf": "ComplexHalf tensors cannot be on a tpu device",
}
# Missing or wrong, each with what it is; strict: one that passes must leave the list.
KNOWN_FAILURES: dict[str, str] = {}
# What fails in the wider run of docs/conformance.md, other than draws, and why it stays. The facts
# are tested in tests/ops/test_differences.py.
ORDER = "equal values come in order of their indices; the CPU's order depends on its algorithm"
STATISTICS = (
    "float32, as PyTorch's own reference says for all devices but the CPU, which rounds them"
)
CONFORMANCE_DIFFERENCES = {
    "_batch_norm_with_update": STATISTICS,
    "_native_batch_norm_legit": STATISTICS,
    "chalf": "XLA has no complex type of two float16: refused with a sentence",
    "kthvalue": ORDER,
    "matrix_exp": "bfloat16: finite, where the CPU's intermediate results overflow to NaN",
    "msort": ORDER,
    "native_batch_norm": STATISTICS,
    "native_layer_norm": STATISTICS,
    "sort": ORDER,
    "sparse.mm.reduce": "bfloat16: gradients are summed in float32, on the CPU in bfloat16",
    "topk": ORDER,
}
# Strides that are neither the CPU's nor a fake tensor's, and why.
CUT = "a pad that only cuts keeps the order of dims on the CPU"
OTHER_STRIDES = {
    "__getitem__": "indexing a transposed tensor gives row-major results",
    "cdist": "gradients are row-major",
    "chalf": "ComplexHalf tensors cannot be on a tpu device",
    "fft.fft": CUT,
    "fft.ifft": CUT,
    "fft.ihfft": CUT,
    "fft.rfft": CUT,
    "nn.functional.conv_transpose3d": "channels_last is kept, on the CPU by its choice of kernel",
    "sparse.mm.reduce": "no kernel",
    "sparse.sampled_addmm": "no kernel",
    "unique_consecutive": "along a dim the CPU gives transposed views",
}
# Modules that draw numbers in training: dtype and shape are compared.
RANDOM_MODULES: set[str] = set()
# Modules and optimizers (with their implementation) that differ from the CPU, and why.
OTHER_MODULES: dict[str, str] = {}
OTHER_OPTIMIZERS: dict[tuple[str, str], str] = {}
# Error inputs that raise another class, other words, or nothing, and why.
OVERLAP = "an out= that shares memory with an input is no fault here: values never change"
DIMS = "more than 64 dims are no fault"
WORDS = "the dtype of an out= is refused in other words"
OTHER_ERRORS = {
    "amax": f"{DIMS}; {WORDS}",
    "amin": f"{DIMS}; {WORDS}",
    "aminmax": DIMS,
    "cat": OVERLAP,
    "complex": WORDS,
    "gather": OVERLAP,
    "index_select": OVERLAP,
    "kthvalue": OVERLAP,
    "masked_select": OVERLAP,
    "multinomial": f"{WORDS}; {OVERLAP}",
    "take": OVERLAP,
}
