#!/usr/bin/env python3
"""Pre-trains @MODEL@ on @PLACE@ with Hugging Face transformers.

@ABOUT@

#if tokens
    pip install torch transformers accelerate@PACKAGES@
    gpudays tokens TEXT... --tokenizer tokenizer.json -o train.bin
@START@

DATA is a file of token ids: what 'gpudays tokens' writes, or ids and nothing else as nanoGPT has
them (uint16; uint32 where the vocabulary has more than 65,536), or a .npy file.
#end
#if images
    pip install torch torchvision transformers accelerate@PACKAGES@
@START@

DATA is a folder that has a folder of images for each class.
#end

Started again, the run goes on from its last checkpoint in @NAME@/. To try it out, on a CPU too:
python3 train.py DATA --cpu --set max_steps=2
"""

import argparse
import json
import os
import sys

#if tokens
import numpy
#end
import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

# The model: a config.json of Hugging Face.
MODEL = json.loads(r'''
@CONFIG@
''')

# transformers.TrainingArguments, as 'gpudays export --format hf' writes them.
SETTINGS = json.loads(r'''
@SETTINGS@
''')

GPUS = @GPUS@  # a step has the recipe's batch of @BATCH@ on so many
#if tokens
SEQ = @SEQ@  # tokens of a sequence
CLASSES = @CLASSES@  # the vocabulary
#end
#if images
CLASSES = @CLASSES@
#end
#if masked
MASK_TOKEN = @MASK@
#end
NO_DECAY = (@NO_DECAY@)  # parameters that weight decay leaves out

#if tokens

def read_ids(path):
    """The ids of a file, which stays on the disk."""
    if path.endswith(".npy"):
        return numpy.load(path, mmap_mode="r")
    magic = int(numpy.fromfile(path, "<i4", 1)[0])
    if magic in (20240520, 20240801):  # llm.c, as gpudays writes it
        return numpy.memmap(path, "<u2" if magic == 20240520 else "<u4", "r", offset=1024)
    return numpy.memmap(path, "<u2" if CLASSES <= 65536 else "<u4", "r")


#if causal
class Data(torch.utils.data.Dataset):
    """Sequences that overlap by one token, so that each token is predicted once."""

    def __init__(self, path):
        self.ids = read_ids(path)
        if len(self) < 1 or self.ids[:1000000].max() >= CLASSES:
            sys.exit(f"{path}: shorter than a sequence, or ids past the model's vocabulary")

    def __len__(self):
        return (len(self.ids) - 1) // (SEQ - 1)

    def __getitem__(self, i):
        first = int(i) * (SEQ - 1)
        ids = torch.from_numpy(self.ids[first:first + SEQ].astype(numpy.int64))
        labels = ids.clone()  # the model shifts them,
        labels[0] = -100  # and the Trainer's mean must not count what nothing predicts
        return {"input_ids": ids, "labels": labels}


#end
#if masked
class Data(torch.utils.data.Dataset):
    """BERT's task: of 15 % of the tokens 80 % become the mask, 10 % another token."""

    def __init__(self, path):
        self.ids = read_ids(path)
        if len(self) < 1 or self.ids[:1000000].max() >= CLASSES:
            sys.exit(f"{path}: shorter than a sequence, or ids past the model's vocabulary")

    def __len__(self):
        return len(self.ids) // SEQ

    def __getitem__(self, i):
        first = int(i) * SEQ
        ids = torch.from_numpy(self.ids[first:first + SEQ].astype(numpy.int64))
        chosen, share = torch.rand(SEQ) < 0.15, torch.rand(SEQ)
        labels = torch.where(chosen, ids, -100)
        others = torch.randint(CLASSES, (SEQ,))
        ids = torch.where(chosen & (share < 0.9), others, ids)
        ids = torch.where(chosen & (share < 0.8), MASK_TOKEN, ids)
        return {"input_ids": ids, "labels": labels}


#end
#end
#if images

def Data(path):
    """Random crops, half of them mirrored, with the means and deviations of ImageNet."""
    import torchvision
    from torchvision.transforms import v2
    size = MODEL.get("image_size", 224)
    change = v2.Compose([
        v2.RGB(), v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip(),
        v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    return torchvision.datasets.ImageFolder(path, change)


def collate(samples):
    pixels, labels = zip(*samples)
    return {"pixel_values": torch.stack(pixels), "labels": torch.tensor(labels)}


#end
class Trainer(transformers.Trainer):
    """The recipe's weight decay: of all parameters but NO_DECAY."""

    def get_decay_parameter_names(self, model):
        return [name for name, _ in model.named_parameters() if not name.endswith(NO_DECAY)]
#if adam

    @staticmethod
    def get_optimizer_cls_and_kwargs(args, model=None):
        """Adam: its decay is added to the gradient. The Trainer has AdamW alone."""
        _, keywords = transformers.Trainer.get_optimizer_cls_and_kwargs(args, model)
        return torch.optim.Adam, keywords
#end


def make_model(folder=None):
    """With random weights, or with those of a folder."""
    how = {"dtype": torch.float32@ATTENTION@}
    if folder:
        return transformers.@AUTO@.from_pretrained(folder, **how)
    config = transformers.AutoConfig.for_model(**MODEL)
    return transformers.@AUTO@.from_config(config, **how)


#if deepspeed
def start_deepspeed(settings):
    """What its launcher says of a process that is alone, and on CPUs, where accelerate does not
    start it: ZeRO 3 counts the processes when the model is made."""
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
             "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for name, value in alone.items():
        os.environ.setdefault(name, value)
    if settings.get("use_cpu"):
        import deepspeed
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)


#end
def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="@DATA_HELP@")
    parser.add_argument("settings", nargs="?", help="TrainingArguments in JSON, instead of those here")
    parser.add_argument("--init", metavar="FOLDER", help="begin with the weights of this model")
    parser.add_argument("--set", metavar="NAME=VALUE", nargs="+", default=[], help="of the settings")
    parser.add_argument("--cpu", action="store_true",
                        help="try it: one process, not sharded, not compiled, without fp16 and TF32")
    options = parser.parse_args()
    settings = SETTINGS
    if options.settings:
        with open(options.settings, encoding="utf-8") as file:
            settings = json.load(file)
    settings = {"logging_steps": 10, "save_total_limit": 2, "report_to": "none"} | settings
    if options.cpu:
        for name in ("fp16", "tf32", "fsdp", "fsdp_config", "deepspeed", "torch_compile"):
            settings.pop(name, None)
        settings |= {"use_cpu": True, "optim": "adamw_torch"}
    for change in options.set:
        name, _, value = change.partition("=")
        settings[name] = json.loads(value)
    return options, settings


def main():
    options, settings = read_arguments()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes != GPUS and not options.cpu:
        sys.exit(f"{processes} processes instead of {GPUS} would make another batch; start it with\n"
                 f"  @LAUNCH@ train.py {options.data}")
    if not options.cpu and not settings.get("use_cpu") and not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU here; --cpu tries the script without one")
#if deepspeed
    if "deepspeed" in settings:
        start_deepspeed(settings)
#end
    args = transformers.TrainingArguments(**settings)
    transformers.set_seed(args.seed)
#if images
    data = Data(options.data)
    if len(data.classes) > CLASSES:
        sys.exit(f"{options.data} has {len(data.classes)} classes, the model {CLASSES}")
    trainer = Trainer(make_model(options.init), args, train_dataset=data, data_collator=collate)
#end
#if tokens
    trainer = Trainer(make_model(options.init), args, train_dataset=Data(options.data))
#end
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
