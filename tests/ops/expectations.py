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
KNOWN_FAILURES = {
    "_segment_reduce.lengths": "no lowering yet",
    "_segment_reduce.offsets": "no lowering yet",
    "linalg.eig": "no lowering yet: general eigenvalues need a QR iteration or LAPACK",
    "linalg.eigvals": "no lowering yet",
    "linalg.ldl_factor": "no lowering yet",
    "linalg.ldl_factor_ex": "no lowering yet",
    "linalg.ldl_solve": "no lowering yet",
    "sparse.mm.reduce": "sparse layouts have no TPU kernels",
    "sparse.sampled_addmm": "sparse layouts have no TPU kernels",
    "to_sparse": "sparse layouts have no TPU kernels",
}
