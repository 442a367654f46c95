#!/usr/bin/env python3
"""Makes and checks the numeric references that `gpudays verify` reads.

    python3 tools/make_reference.py [NAME...] [-o DIR]   makes reference folders
    python3 tools/make_reference.py --check [NAME...]    runs them in fp32 and prints the errors
    python3 tools/make_reference.py --list               names the cases

A folder holds config.json, model.safetensors, batch.safetensors, recipe.json and
reference.safetensors; tests/reference/README.md says what is in them. The weights are the fp32
values stored; loss, gradients and training steps are computed in float64 from start to end and
stored as fp32. The versions used are in the metadata of reference.safetensors.

Needs torch, safetensors and transformers 5; made with torch 2.15.0 and transformers 5.22.2. A case
that wants transformers 4 (made with 4.49.0) is skipped by 5; the old one may lie in a folder apart:
    pip install --target OLD transformers==4.49.0
    PYTHONPATH=OLD python3 tools/make_reference.py neox-v4-config
Another family is one more row of CASES, and one more function of BATCHES if its inputs are new.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import pathlib
import sys
import tempfile
from typing import Callable

import safetensors
import safetensors.torch
import torch
import transformers
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

DEFAULT_DIR = pathlib.Path(__file__).resolve().parent.parent / "tests" / "reference"
TRANSFORMERS_MAJOR = int(transformers.__version__.split(".")[0])
IGNORED_LABEL = -100


# ---------------------------------------------------------------------------------- the cases


@dataclasses.dataclass(frozen=True)
class Case:
    """One reference folder."""

    model: str  # class of the transformers package
    config: dict  # keywords of its configuration class
    batch: tuple  # row of BATCHES and its keywords
    recipe: dict  # what recipe.json says; max_grad_norm 0 = no clipping
    seed: int
    matrix_noise: float = 0.15  # standard deviation added to parameters of two and more dims
    vector_noise: float = 0.1  # the same for biases and norm weights
    transformers: int = 5  # major version that must write the folder
    extra: Callable | None = None  # config -> tensors that model.safetensors carries besides
    strip: str = ""  # what names in model.safetensors lose at their beginning
    own_names: bool = False  # tensors go by the model's parameter names: no save_pretrained


def tokens(config, generator, batch, length, ignored=0.0, padded=0.0):
    """Random tokens; labels are the tokens, not shifted, a share of them ignored; the ids have
    padding in some places, inside the text too."""
    ids = torch.randint(config.vocab_size, (batch, length), generator=generator, dtype=torch.int32)
    labels = ids.clone()
    if padded > 0:
        ids[torch.rand(batch, length, generator=generator) < padded] = config.pad_token_id
    labels[torch.rand(batch, length, generator=generator) < ignored] = IGNORED_LABEL
    return {"input_ids": ids, "labels": labels}


def images(config, generator, batch, ignored=0):
    """Normal pixels of the configuration's image size; random classes, the last few ignored."""
    size = config.image_size
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    pixels = torch.randn(batch, config.num_channels, height, width, generator=generator)
    labels = torch.randint(config.num_labels, (batch,), generator=generator, dtype=torch.int32)
    labels[batch - ignored:] = IGNORED_LABEL
    return {"pixel_values": pixels, "labels": labels}


BATCHES = {"tokens": tokens, "images": images}


def old_masks(layers, positions, masked, attention):
    """Causal masks and the value of what is masked, which old versions stored with the weights; the
    masks were uint8 first, then bool."""
    mask = torch.ones(positions, positions).tril().view(1, 1, positions, positions)
    extra = {}
    for layer in range(layers):
        name = attention.format(layer)
        extra[f"{name}.bias"] = mask.to(torch.uint8 if layer % 2 == 0 else torch.bool)
        extra[f"{name}.masked_bias"] = torch.tensor(masked)
    return extra


def old_neox_buffers(config):
    """Masks, and the frequencies of each layer."""
    attention = "gpt_neox.layers.{}.attention"
    rotary = int(config.hidden_size // config.num_attention_heads * config.rotary_pct)
    inv_freq = 1.0 / config.rotary_emb_base ** (torch.arange(0, rotary, 2).float() / rotary)
    extra = old_masks(config.num_hidden_layers, config.max_position_embeddings, -1e9, attention)
    for layer in range(config.num_hidden_layers):
        extra[f"{attention.format(layer)}.rotary_emb.inv_freq"] = inv_freq.clone()
    return extra


def old_gpt2_buffers(config):
    """Masks under the names of a checkpoint without a head, as OpenAI's are stored."""
    return old_masks(config.n_layer, config.n_positions, -1e4, "h.{}.attn")


def neox(**keywords):
    return {"bos_token_id": 0, "eos_token_id": 0, "max_position_embeddings": 64} | keywords


def gpt2(**keywords):
    return {"bos_token_id": 0, "eos_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
            "attn_pdrop": 0.0} | keywords


def llama(**keywords):
    return {"bos_token_id": 0, "eos_token_id": 2, "max_position_embeddings": 64} | keywords


def bert(**keywords):
    return {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} | keywords


def adam(optimizer, **keywords):
    defaults = {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0}
    return {"optimizer": optimizer} | defaults | {"max_grad_norm": 0.0, "steps": 5} | keywords


# Rotary dims are int(head size x share), as transformers has it, and must be even: 18 x 0.25 -> 4.
CASES = {
    "neox-parallel": Case(
        model="GPTNeoXForCausalLM",
        config=neox(vocab_size=101, hidden_size=54, num_attention_heads=3, num_hidden_layers=2,
                    intermediate_size=68, rotary_pct=0.25, use_parallel_residual=True),
        batch=("tokens", {"batch": 3, "length": 19}),
        recipe=adam("adamw", weight_decay=0.1, max_grad_norm=1.0),
        seed=1),
    "neox-serial": Case(
        model="GPTNeoXForCausalLM",
        config=neox(vocab_size=131, hidden_size=48, num_attention_heads=3, num_hidden_layers=2,
                    intermediate_size=92, rotary_pct=1.0, use_parallel_residual=False),
        batch=("tokens", {"batch": 2, "length": 33, "ignored": 0.3}),
        recipe=adam("adam", weight_decay=0.01),
        seed=2),
    "neox-tied": Case(
        model="GPTNeoXForCausalLM",
        config=neox(vocab_size=109, hidden_size=40, num_attention_heads=2, num_hidden_layers=3,
                    intermediate_size=101, rotary_pct=0.5, hidden_act="gelu_new",
                    tie_word_embeddings=True),
        batch=("tokens", {"batch": 1, "length": 7}),
        # A large eps, because Adam without it undoes any clipping that is the same every step.
        recipe=adam("adam", eps=1e-3, max_grad_norm=0.05),
        seed=3),
    "neox-nobias": Case(
        model="GPTNeoXForCausalLM",
        config=neox(vocab_size=113, hidden_size=50, num_attention_heads=5, num_hidden_layers=2,
                    intermediate_size=75, rotary_pct=0.4, rotary_emb_base=500,
                    attention_bias=False),
        batch=("tokens", {"batch": 2, "length": 17}),
        recipe=adam("adamw", weight_decay=0.05, betas=[0.9, 0.999]),
        seed=4,
        own_names=True),
    "neox-v4-config": Case(
        model="GPTNeoXForCausalLM",
        config=neox(vocab_size=101, hidden_size=36, num_attention_heads=2, num_hidden_layers=2,
                    intermediate_size=72, rotary_pct=0.25, use_parallel_residual=True,
                    max_position_embeddings=32),
        batch=("tokens", {"batch": 3, "length": 19}),
        recipe=adam("adamw", weight_decay=0.1, max_grad_norm=1.0),
        seed=5,
        transformers=4,
        extra=old_neox_buffers),
    "gpt2-a": Case(
        model="GPT2LMHeadModel",
        config=gpt2(vocab_size=103, n_positions=37, n_embd=33, n_layer=2, n_head=3),
        batch=("tokens", {"batch": 3, "length": 19, "ignored": 0.2}),
        recipe=adam("adamw", weight_decay=0.1, max_grad_norm=1.0),
        seed=11),
    "gpt2-b": Case(
        model="GPT2LMHeadModel",
        config=gpt2(vocab_size=91, n_positions=21, n_embd=34, n_layer=3, n_head=2, n_inner=45,
                    activation_function="gelu", layer_norm_epsilon=1e-4),
        batch=("tokens", {"batch": 2, "length": 21}),
        recipe=adam("adam", weight_decay=0.01),
        seed=12,
        transformers=4,
        extra=old_gpt2_buffers,
        strip="transformer."),
    "llama-a": Case(
        model="LlamaForCausalLM",
        config=llama(vocab_size=101, hidden_size=36, num_attention_heads=6, num_key_value_heads=2,
                     head_dim=10, num_hidden_layers=2, intermediate_size=53,
                     rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0,
                                      "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 24}),
        batch=("tokens", {"batch": 2, "length": 23, "ignored": 0.2}),
        recipe=adam("adamw", weight_decay=0.1, max_grad_norm=1.0),
        seed=21,
        matrix_noise=0.1),
    "llama-b": Case(
        model="LlamaForCausalLM",
        config=llama(vocab_size=83, hidden_size=40, num_attention_heads=4, num_hidden_layers=2,
                     intermediate_size=61, rope_theta=200.0, attention_bias=True, mlp_bias=True,
                     rope_scaling={"type": "linear", "factor": 3.0}, tie_word_embeddings=True,
                     pad_token_id=3),
        batch=("tokens", {"batch": 3, "length": 17, "padded": 0.2}),
        recipe=adam("adam", eps=1e-6),
        seed=22,
        matrix_noise=0.1,
        transformers=4),
    "mistral": Case(
        model="MistralForCausalLM",
        config=llama(vocab_size=97, hidden_size=30, num_attention_heads=5, num_key_value_heads=1,
                     num_hidden_layers=2, intermediate_size=71, rope_theta=1000.0,
                     rms_norm_eps=1e-5, sliding_window=19),
        batch=("tokens", {"batch": 2, "length": 19}),
        recipe=adam("adamw", weight_decay=0.05),
        seed=23,
        matrix_noise=0.1,
        transformers=4),
    "qwen2": Case(
        model="Qwen2ForCausalLM",
        config=llama(vocab_size=89, hidden_size=28, num_attention_heads=2, num_key_value_heads=1,
                     num_hidden_layers=3, intermediate_size=55, sliding_window=8,
                     rope_parameters={"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0,
                                      "original_max_position_embeddings": 16, "beta_fast": 2.0,
                                      "beta_slow": 0.5}),
        batch=("tokens", {"batch": 2, "length": 25}),
        recipe=adam("adamw", weight_decay=0.1, max_grad_norm=1.0),
        seed=24,
        matrix_noise=0.1),
    "qwen3": Case(
        model="Qwen3ForCausalLM",
        config=llama(vocab_size=83, hidden_size=30, num_attention_heads=6, num_key_value_heads=2,
                     head_dim=14, num_hidden_layers=3, intermediate_size=57, attention_bias=True,
                     rope_parameters={"rope_type": "default", "rope_theta": 700.0}),
        batch=("tokens", {"batch": 2, "length": 21}),
        recipe=adam("adamw", weight_decay=0.1, max_grad_norm=1.0),
        seed=26,
        matrix_noise=0.1),
    "olmo": Case(
        model="OlmoForCausalLM",
        config=llama(vocab_size=107, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
                     num_hidden_layers=3, intermediate_size=65, max_position_embeddings=16,
                     tie_word_embeddings=True,
                     rope_parameters={"rope_type": "dynamic", "rope_theta": 400.0, "factor": 2.0}),
        batch=("tokens", {"batch": 2, "length": 23, "padded": 0.1}),
        recipe=adam("adamw", weight_decay=0.1),
        seed=25,
        matrix_noise=0.1),
    "roberta-a": Case(
        model="RobertaForMaskedLM",
        config=bert(vocab_size=97, hidden_size=33, num_attention_heads=3, num_hidden_layers=2,
                    intermediate_size=70, max_position_embeddings=30, layer_norm_eps=1e-5),
        batch=("tokens", {"batch": 3, "length": 21, "ignored": 0.7, "padded": 0.2}),
        recipe=adam("adam", weight_decay=0.01, betas=[0.9, 0.98], eps=1e-6),
        seed=31),
    "roberta-b": Case(
        model="RobertaForMaskedLM",
        config=bert(vocab_size=113, hidden_size=30, num_attention_heads=2, num_hidden_layers=3,
                    intermediate_size=49, max_position_embeddings=30, type_vocab_size=1,
                    hidden_act="gelu_new"),
        batch=("tokens", {"batch": 2, "length": 28, "ignored": 0.6}),
        recipe=adam("adamw", weight_decay=0.1, max_grad_norm=1.0),
        seed=32,
        transformers=4),
    "bert": Case(
        model="BertForMaskedLM",
        config=bert(vocab_size=109, hidden_size=34, num_attention_heads=2, num_hidden_layers=2,
                    intermediate_size=57, max_position_embeddings=31),
        batch=("tokens", {"batch": 3, "length": 17, "ignored": 0.6, "padded": 0.1}),
        recipe=adam("adam", weight_decay=0.01),
        seed=33,
        transformers=4),
    # use_cache=False keeps the cache of generation, which evaluation would fill, out of the graph.
    "mamba-a": Case(
        model="MambaForCausalLM",
        config=dict(vocab_size=101, hidden_size=35, num_hidden_layers=2, state_size=5,
                    use_cache=False),
        batch=("tokens", {"batch": 3, "length": 19}),
        # So much that decaying what is exempt would be seen in the losses.
        recipe=adam("adamw", weight_decay=1.0, decay_all=False, max_grad_norm=1.0),
        seed=11),
    "mamba-b": Case(  # more steps than lie between two stored states
        model="MambaForCausalLM",
        config=dict(vocab_size=89, hidden_size=23, num_hidden_layers=3, state_size=18, expand=3,
                    conv_kernel=3, time_step_rank=5, use_bias=True, use_conv_bias=False,
                    tie_word_embeddings=False, use_cache=False),
        batch=("tokens", {"batch": 2, "length": 83, "ignored": 0.2}),
        recipe=adam("adam", weight_decay=0.01),
        seed=12,
        transformers=4),
    "vit-a": Case(
        model="ViTForImageClassification",
        config=dict(image_size=[20, 28], patch_size=5, hidden_size=33, num_attention_heads=3,
                    num_hidden_layers=2, intermediate_size=58, num_labels=11, layer_norm_eps=1e-6),
        batch=("images", {"batch": 3}),
        recipe=adam("adam", lr=1e-3, weight_decay=0.03, max_grad_norm=1.0),
        seed=47,
        matrix_noise=0.07,  # large scores make much noise of a key bias's gradient, which is zero
        own_names=True),
    "vit-b": Case(  # columns and rows are left over behind the last patch
        model="ViTForImageClassification",
        config=dict(image_size=23, patch_size=7, num_channels=2, hidden_size=34,
                    num_attention_heads=2, num_hidden_layers=3, intermediate_size=45, num_labels=5,
                    qkv_bias=False, hidden_act="gelu_new"),
        batch=("images", {"batch": 5, "ignored": 2}),
        recipe=adam("adamw", lr=5e-4, weight_decay=0.1),
        seed=46,
        transformers=4),
    "convnext-a": Case(
        model="ConvNextForImageClassification",
        config=dict(image_size=64, hidden_sizes=[10, 17, 24, 31], depths=[1, 2, 1, 1],
                    num_labels=13, layer_scale_init_value=0.5),
        batch=("images", {"batch": 2}),
        recipe=adam("adamw", lr=5e-4, weight_decay=0.05),
        seed=43),
    "convnext-b": Case(  # odd sizes in every stage: 15 x 11, 7 x 5, 3 x 2 pixels
        model="ConvNextForImageClassification",
        config=dict(image_size=[47, 33], patch_size=3, num_stages=3, hidden_sizes=[19, 33, 21],
                    depths=[2, 1, 1], num_labels=7, layer_norm_eps=1e-5, hidden_act="silu",
                    layer_scale_init_value=0.0),
        batch=("images", {"batch": 3, "ignored": 1}),
        recipe=adam("adam", lr=1e-3, max_grad_norm=1.0, eps=1e-6),
        seed=44,
        transformers=4),
}


# ------------------------------------------------------------------------------ float64 throughout


class AskForFloat64(TorchFunctionMode):
    """Turns every request for float32 into one for float64.

    model.double() is not enough: models ask for float32 by name, in rotary angles, in the softmax
    of attention and in the loss, and would round there.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def widen(value):
            return torch.float64 if value is torch.float32 else value

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*map(widen, args), **{k: widen(v) for k, v in (kwargs or {}).items()})


class AllowOnlyFloat64(TorchDispatchMode):
    """Fails at the first operation, forward or backward, that yields another floating type."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                if value.dtype is not torch.float64:
                    raise TypeError(f"{func} yields {value.dtype} where float64 is wanted")
        return result


@contextlib.contextmanager
def float64_only():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with AskForFloat64(), AllowOnlyFloat64():
            yield
    finally:
        torch.set_default_dtype(before)


# ---------------------------------------------------------------------------------------- training


def model_class(case):
    return getattr(transformers, case.model)


def build_config(case):
    return model_class(case).config_class(**case.config, attn_implementation="eager")


def build_weights(case):
    """The model in fp32: its own initialisation plus noise, so that every gradient is at work."""
    torch.manual_seed(case.seed)
    model = model_class(case)(build_config(case))
    generator = torch.Generator().manual_seed(case.seed)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = case.matrix_noise if parameter.dim() > 1 else case.vector_noise
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=scale)
    return model


def build_batch(case, config):
    kind, keywords = case.batch
    return BATCHES[kind](config, torch.Generator().manual_seed(case.seed), **keywords)


# Last parts of the names of parameters that their models' authors exempt from weight decay.
NOT_DECAYED = {"A_log", "D"}


def build_optimizer(model, recipe):
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    groups = list(model.parameters())
    if not recipe.get("decay_all", True):
        exempt, decayed = [], []
        for name, parameter in model.named_parameters():
            (exempt if name.split(".")[-1] in NOT_DECAYED else decayed).append(parameter)
        groups = [{"params": decayed}, {"params": exempt, "weight_decay": 0.0}]
    return kinds[recipe["optimizer"]](groups, lr=recipe["lr"], betas=tuple(recipe["betas"]),
                                      eps=recipe["eps"], weight_decay=recipe["weight_decay"])


def train(model, batch, recipe):
    """Runs the recipe on one batch: first gradients by name, losses and gradient norms by step."""
    parameters = list(model.parameters())
    batch = {k: v.to(parameters[0].dtype) if v.is_floating_point() else v.long()
             for k, v in batch.items()}
    optimizer = build_optimizer(model, recipe)
    gradients, losses, norms = {}, [], []
    model.eval()
    for step in range(recipe["steps"]):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        if step == 0:
            gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        losses.append(loss.item())
        norms.append(math.sqrt(sum(p.grad.square().sum().item() for p in parameters)))
        if recipe["max_grad_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(parameters, recipe["max_grad_norm"])
        optimizer.step()
    return gradients, losses, norms


def train_exactly(case, model, batch):
    """train() in float64, from the weights of an fp32 model."""
    weights = {name: p.detach().double() for name, p in model.named_parameters()}
    with float64_only():
        exact = model_class(case)(build_config(case))
        with torch.no_grad():
            for name, parameter in exact.named_parameters():
                parameter.copy_(weights[name])
        return train(exact, batch, case.recipe)


# ------------------------------------------------------------------------------------------- files


def file_names(case, model, tensors):
    """Gives tensors that go by the model's own parameter names the names that its files use.

    They differ: transformers 5 calls NeoX's head lm_head and stores it as embed_out.
    """
    if case.own_names:
        return tensors
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, state_dict=dict(tensors))
        return safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")


def made_with():
    """Metadata of reference.safetensors; one entry, as safetensors writes several in any order."""
    return {"made_with": f"tools/make_reference.py, torch {torch.__version__}, "
                         f"transformers {transformers.__version__}, computed in float64"}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def save_weights(folder, weights):
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def make(name, case, root):
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    model = build_weights(case)
    batch = build_batch(case, model.config)
    gradients, losses, norms = train_exactly(case, model, batch)

    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if case.own_names:
        weights = {n: p.detach().contiguous() for n, p in model.named_parameters()}
        save_weights(folder, weights)
    if case.extra or case.strip:
        stored = safetensors.torch.load_file(folder / "model.safetensors")
        weights = {n.removeprefix(case.strip): w for n, w in stored.items()}
        extra = case.extra(model.config) if case.extra else {}
        save_weights(folder, weights | extra)

    gradients = {n: g.float().contiguous() for n, g in gradients.items()}
    reference = {f"grad.{n}": g for n, g in file_names(case, model, gradients).items()}
    reference["loss"] = torch.tensor([losses[0]], dtype=torch.float32)
    reference["losses"] = torch.tensor(losses, dtype=torch.float32)
    safetensors.torch.save_file(reference, folder / "reference.safetensors", metadata=made_with())
    safetensors.torch.save_file(batch, folder / "batch.safetensors", metadata={"format": "pt"})
    write_json(folder / "recipe.json", case.recipe)
    for path in folder.iterdir():
        path.chmod(0o644)

    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size / 1024:.0f} KiB, "
          f"losses {' '.join(f'{loss:.6f}' for loss in losses)}, "
          f"gradient norms {' '.join(f'{norm:.4f}' for norm in norms)}")


# ------------------------------------------------------------------------------------------- check


def check(name, case, root):
    """Runs a stored folder in fp32 and prints its distance from what the folder says."""
    folder = root / name
    model = model_class(case).from_pretrained(folder, attn_implementation="eager")
    batch = safetensors.torch.load_file(folder / "batch.safetensors")
    recipe = json.loads((folder / "recipe.json").read_text())
    reference = safetensors.torch.load_file(folder / "reference.safetensors")
    gradients, losses, _ = train(model, batch, recipe)
    gradients = file_names(case, model, gradients)

    wanted = {k.removeprefix("grad."): v.double() for k, v in reference.items()
              if k.startswith("grad.")}
    if wanted.keys() != gradients.keys():
        sys.exit(f"{name}: gradients differ in names: {wanted.keys() ^ gradients.keys()}")
    total = math.sqrt(sum(g.square().sum().item() for g in wanted.values()))
    errors = {k: ((gradients[k].double() - g).norm() / max(g.norm().item(), 1e-4 * total)).item()
              for k, g in wanted.items()}
    worst = max(errors, key=errors.get)
    trajectory = max(abs(a / b - 1) for a, b in zip(losses, reference["losses"].double().tolist()))
    print(f"{name}: transformers {transformers.__version__} in fp32: "
          f"loss {abs(losses[0] / reference['loss'].item() - 1):.1e}, "
          f"gradient {errors[worst]:.1e} ({worst}), trajectory {trajectory:.1e}")
    return max(errors[worst], trajectory) < 1e-4  # what gpudays verify allows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases (default: all)")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=DEFAULT_DIR, metavar="DIR")
    parser.add_argument("--check", action="store_true", help="check folders instead of making them")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return 0
    unknown = [name for name in arguments.names if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; --list names them")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    good = True
    for name in arguments.names or CASES:
        case = CASES[name]
        if arguments.check:
            good &= check(name, case, arguments.output)
        elif case.transformers == TRANSFORMERS_MAJOR:
            make(name, case, arguments.output)
        else:
            print(f"{name}: skipped, needs transformers {case.transformers}, "
                  f"not {transformers.__version__}")
            good &= name not in arguments.names
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
