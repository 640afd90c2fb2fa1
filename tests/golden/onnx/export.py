"""Writes ONNX files with torch.onnx.export, and the scores that PyTorch computes: python export.py (torch, onnx, onnxscript).

`scripted.onnx` comes from the TorchScript exporter, in opset 13, with batch norm kept. `folded.onnx` comes from the same exporter with
batch norm folded. `dynamo.onnx` comes from the exporter for torch.export. `edges.onnx` has another network, with constants and zeros
around the layers. `vit_scripted.onnx`, `vit_dynamo.onnx` and `vit_operator.onnx` are vision transformers: with PyTorch's
`nn.MultiheadAttention`, with `scaled_dot_product_attention` as in timm, and with ONNX's operator for it. `scores.json` has the scores of the
images.
"""

import json
from pathlib import Path

import onnx
import torch
from torch import nn
from torchvision.models import maxvit, swin_transformer

HERE = Path(__file__).parent


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, 2, 1)
        self.fc2 = nn.Conv2d(2, channels, 1)

    def forward(self, x):
        s = torch.relu(self.fc1(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.fc2(s))


class Block(nn.Module):
    def __init__(self, channels, act):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.act = act
        self.se = Squeeze(channels)
        self.conv2 = nn.Conv2d(channels, channels, (1, 3), padding=(0, 1), bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.se(self.act(self.bn1(self.conv1(x))))
        return torch.relu(self.bn2(self.conv2(y)) + x)


class LastNorm(nn.Module):
    """Layer norm over channels, as in ConvNeXt, and a linear layer per pixel."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.fc = nn.Linear(channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x):
        y = self.norm(x.permute(0, 2, 3, 1))
        y = nn.functional.gelu(self.fc(y)) * self.scale
        return x + y.permute(0, 3, 1, 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU6())
        self.layer1 = nn.Sequential(Block(6, nn.SiLU()), Block(6, nn.Hardswish()))
        self.pool = nn.MaxPool2d(3, 2, 1, ceil_mode=True)
        self.last = LastNorm(6)
        self.norm = nn.GroupNorm(3, 6)
        self.mean = nn.AvgPool2d(2)
        self.drop = nn.Dropout(0.25)
        self.hidden = nn.Linear(24, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.norm(self.last(self.pool(self.layer1(self.stem(x)))))
        x = self.mean(nn.functional.leaky_relu(x, 0.2))
        x = self.drop(x.view(x.size(0), -1))
        return self.fc(torch.tanh(self.hidden(x)))


class Edges(nn.Module):
    """Rescales the images, pads tensors that may be negative before other layers than convolutions, and crops."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.fc = nn.Linear(6 * 5 * 4, 5)

    def forward(self, x):
        x = self.conv(x * 0.75 - 0.5)
        x = nn.functional.max_pool2d(nn.functional.pad(x, (0, 1, 1, 2)), 3, 2)
        x = nn.functional.max_pool2d(nn.functional.pad(x, (1, 0, 2, 1), value=float("-inf")), 3, 1)[:, :, 1:]
        x = nn.functional.pad(x, (2, -1, 1, 0)) + 0.25
        return self.fc(nn.functional.avg_pool2d(x, 2).flatten(1))


class Fused(nn.Module):
    """Attention with one projection for queries, keys and values, as in timm."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(n, tokens, width))


class Separate(nn.Module):
    """PyTorch's own module, as in torchvision."""

    def __init__(self, width, heads):
        super().__init__()
        self.own = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.own(x, x, x, need_weights=False)[0]


class Encoder(nn.Module):
    def __init__(self, width, heads, attention):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = attention(width, heads)
        self.scale = nn.Parameter(torch.full((width,), 0.5))
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + self.scale * self.attn(self.norm1(x))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self, attention=Fused, token=True, width=12, heads=3):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width)) if token else None
        self.pos_embed = nn.Parameter(torch.randn(1, 16 + token, width))
        self.block = Encoder(width, heads, attention)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        if self.token is not None:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        x = self.norm(self.block(x + self.pos_embed))
        return self.head(x.mean(1) if self.token is None else x[:, 0])


def net(kind=Net):
    torch.manual_seed(1)
    model = kind()
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.3, 0.3)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


def images(n):
    """Returns sin(0.37 i) at element i, whole images one after another."""
    return torch.sin(0.37 * torch.arange(n * 3 * 16 * 16, dtype=torch.float64)).float().reshape(n, 3, 16, 16)


def vits():
    """Writes the vision transformers and returns their scores by file."""
    names = dict(input_names=["x"], output_names=["y"])
    scripted, dynamo, operator = net(lambda: Vit(Separate)), net(lambda: Vit(token=False)), net(Vit)
    file = str(HERE / "vit_scripted.onnx")
    open_batch = dict(dynamic_axes={"x": {0: "n"}})
    torch.onnx.export(scripted.eval(), (images(1),), file, dynamo=False, opset_version=17, **names, **open_batch)
    for name, model, opset in [("vit_dynamo", dynamo, 20), ("vit_operator", operator, 23)]:
        file = str(HERE / f"{name}.onnx")
        batch = dict(dynamic_shapes=({0: torch.export.Dim("n", min=1, max=64)},))
        torch.onnx.export(model.eval(), (images(2),), file, dynamo=True, external_data=False, verbose=False, opset_version=opset, **names, **batch)
        # names of source files
        graph = onnx.load(file)
        for node in graph.graph.node:
            del node.metadata_props[:]
        onnx.save(graph, file)
    with torch.no_grad():
        models = {"vit_scripted": scripted, "vit_dynamo": dynamo, "vit_operator": operator}
        return {name: model(images(2)).flatten().tolist() for name, model in models.items()}


def swin(second):
    """A Swin transformer of 8x8 and 4x4 positions, which its windows of 3x3 do not divide."""
    sizes = dict(patch_size=[2, 2], embed_dim=12, depths=[2, 1], num_heads=[2, 4], window_size=[3, 3], num_classes=5, stochastic_depth_prob=0.0)
    if second:
        sizes |= dict(block=swin_transformer.SwinTransformerBlockV2, downsample_layer=swin_transformer.PatchMergingV2)
    model = swin_transformer.SwinTransformer(**sizes)
    for name, parameter in model.named_parameters():
        if "relative_position_bias_table" in name or "cpb_mlp" in name or "qkv.bias" in name:
            nn.init.normal_(parameter, std=0.3)
        if "logit_scale" in name:
            nn.init.uniform_(parameter, 1.0, 3.0)
    return model


def small_maxvit():
    sizes = dict(stem_channels=4, partition_size=2, block_channels=[8], block_layers=[1], head_dim=4, stochastic_depth_prob=0.0)
    model = maxvit.MaxVit(input_size=(16, 16), num_classes=5, **sizes)
    for name, parameter in model.named_parameters():
        if "relative_position_bias_table" in name:
            nn.init.normal_(parameter, std=0.5)
    return model


def windows():
    """Writes the networks with attention in windows and returns their scores by file. Each exporter writes two of them."""
    names = dict(input_names=["x"], output_names=["y"])
    kinds = {"swin_scripted": lambda: swin(False), "swin_v2_dynamo": lambda: swin(True)}
    kinds |= {"maxvit_scripted": small_maxvit, "maxvit_dynamo": small_maxvit}
    scores = {}
    for name, kind in kinds.items():
        model = net(kind).eval()
        with torch.no_grad():
            scores[name] = model(images(2)).flatten().tolist()
        file = str(HERE / f"{name}.onnx")
        if name.endswith("scripted"):
            open_batch = dict(dynamic_axes={"x": {0: "n"}})
            torch.onnx.export(model, (images(1),), file, dynamo=False, opset_version=20, **names, **open_batch)
        else:
            torch.onnx.export(model, (images(2),), file, dynamo=True, external_data=False, verbose=False, opset_version=20, **names)
        # names of source files
        graph = onnx.load(file)
        for node in graph.graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        del graph.graph.value_info[:]
        onnx.save(graph, file)
    return scores


def main():
    x = images(1)
    kept = dict(training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)
    names = dict(input_names=["x"], output_names=["y"])
    open_batch = dict(dynamic_axes={"x": {0: "n"}})
    for name, how, opset in [("scripted", kept, 13), ("folded", {}, 17)]:
        model = net().eval()
        file = str(HERE / f"{name}.onnx")
        torch.onnx.export(model, (x,), file, dynamo=False, opset_version=opset, **how, **names, **open_batch)
    torch.onnx.export(net().eval(), (images(2),), str(HERE / "dynamo.onnx"), dynamo=True, external_data=False, verbose=False, opset_version=20, **names)
    torch.onnx.export(net(Edges).eval(), (x,), str(HERE / "edges.onnx"), dynamo=False, opset_version=17, **names, **open_batch)
    with torch.no_grad():
        scores, edges = (net(kind).eval()(images(2)).flatten().tolist() for kind in (Net, Edges))
    parameters = {name: list(value.shape) for name, value in net().named_parameters()}
    text = {"torch": torch.__version__, "scores": scores, "edges": edges, "vits": vits(), "windows": windows(), "parameters": parameters}
    (HERE / "scores.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
