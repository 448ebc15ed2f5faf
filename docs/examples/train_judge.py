"""Train a judge on battles with OpenING's four losses (4.3), for any image-text-to-text model.

    cepbench arena training ratings/spring --out battles
    python train_judge.py battles --model Qwen/Qwen2-VL-7B-Instruct --out checkpoints/judge
    pytest suites/judge --judge=checkpoints/judge

The paper's formulas (B.2, Eq. 8 to 11) leave open what is embedded and scored; that and the weights
are this project's:

    verdict   cross entropy of the verdict's tokens
    ranking   -log sigmoid(s+ - s-) of the scores of the better and the worse answer; ties by half
    contrast  InfoNCE between the images of the answers and the texts before them
    features  mean squared error between image features and what the last layer says of them

The heads of the last three stay behind: what is saved is a plain checkpoint, LoRA merged.
Needs torch, transformers, accelerate, and peft unless --rank 0.
"""

from __future__ import annotations

import argparse
import json
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.nn import functional
from transformers import AutoModelForImageTextToText, AutoProcessor, Trainer, TrainingArguments

IGNORED = -100  # what cross_entropy leaves out
WIDTH = 128  # of the space in which images and texts are compared
TEMPERATURE = 0.07  # CLIP's at the start of its training


def without_empty_texts(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose images have no text: as parts of a table they have an empty one."""
    for turn in row["prompt"] + row["completion"]:
        turn["content"] = [{k: v for k, v in part.items() if v} for part in turn["content"]]
    return row


class Battles:
    """Collates rows of `train.jsonl` into the inputs of a processor, and where the answers are."""

    def __init__(self, processor: Any, folder: Path) -> None:
        self.processor, self.folder = processor, folder
        processor.tokenizer.padding_side = "right"  # positions are counted from the start

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Inputs with `labels` (rows x tokens), `answers` and `lead`.

        answers: rows x 3, the tokens at which answer A and answer B begin and B ends.
        lead: rows, 1 where A is better, -1 where B is, half of it for ties.
        """
        texts, images, targets, answers = [], [], [], []
        for row in rows:
            prompt = self._render(row["prompt"], add_generation_prompt=True)
            text = self._render(row["prompt"] + row["completion"])
            if not text.startswith(prompt):
                raise SystemExit("the chat template changes the prompt once it has a reply")
            texts.append(text)
            images.append([Image.open(self.folder / name).convert("RGB") for name in row["images"]])
            target = self.processor.tokenizer(text[len(prompt) :], add_special_tokens=False)
            targets.append(target["input_ids"])
            answers.append([self._tokens_before(row, text, images[-1], n) for n in row["answers"]])
        inputs = self._encode(texts, images)
        labels = torch.full_like(inputs["input_ids"], IGNORED)
        lengths = inputs["attention_mask"].sum(1).tolist()
        for line, length, target in zip(labels, lengths, targets, strict=True):
            line[length - len(target) : length] = torch.tensor(target)
        leads = {"A": 1.0, "Tie(A)": 0.5, "Tie(B)": -0.5, "B": -1.0}
        return inputs | {
            "labels": labels,
            "answers": torch.tensor(answers),
            "lead": torch.tensor([leads[row["verdict"]] for row in rows]),
        }

    def _render(self, turns: list[dict[str, Any]], **options: Any) -> str:
        return str(self.processor.apply_chat_template(turns, tokenize=False, **options))

    def _encode(self, texts: list[str], images: list[list[Image.Image]]) -> dict[str, Any]:
        shown = images if any(images) else None
        return dict(self.processor(text=texts, images=shown, padding=True, return_tensors="pt"))

    def _tokens_before(
        self, row: dict[str, Any], text: str, images: list[Image.Image], part: int
    ) -> int:
        """How many tokens stand before a part of the user's turn, images unfolded."""
        *others, user = row["prompt"]
        parts = user["content"][:part]
        begun = self._render([*others, user | {"content": parts}])
        number = sum(part["type"] == "image" for part in parts)
        # What closes the turn differs from what follows in the text at once.
        pairs = zip(text, begun, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return int(self._encode([text[:same]], [images[:number]])["input_ids"].shape[1])


class Judge(nn.Module):
    """A model with the heads of its losses; called with what `Battles` makes."""

    _keys_to_ignore_on_save = None  # Trainer asks for it when it goes on

    def __init__(self, model: Any, weights: dict[str, float]) -> None:
        super().__init__()
        self.model, self.weights, self.config = model, weights, model.config
        width = self.config.get_text_config().hidden_size
        named = (getattr(self.config, f"image_token_{name}", None) for name in ("id", "index"))
        self.image_token = next(token for token in named if token is not None)
        heads = {"score": 1, "image": WIDTH, "text": WIDTH, "features": width}
        self.heads = nn.ModuleDict({name: nn.Linear(width, size) for name, size in heads.items()})
        self.losses: dict[str, list[float]] = {name: [] for name in weights}

    def state_dict(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """What is trained alone: checkpoints of the training stay as small as its LoRA."""
        state = super().state_dict(*arguments, **options)
        return {name: state[name] for name, value in self.named_parameters() if value.requires_grad}

    def forward(
        self, labels: torch.Tensor, answers: torch.Tensor, lead: torch.Tensor, **inputs: Any
    ) -> dict[str, torch.Tensor]:
        """The weighted sum of the losses, as `loss`."""
        # The model below its head: logits of whole battles would take more memory than the rest.
        plain = getattr(self.model, "get_base_model", lambda: self.model)()
        states = plain.base_model(**inputs, output_hidden_states=True, use_cache=False)
        first, last = states.hidden_states[0], states.hidden_states[-1]
        known = labels[:, 1:] != IGNORED
        logits = plain.get_output_embeddings()(last[:, :-1][known])
        losses = {"verdict": functional.cross_entropy(logits.float(), labels[:, 1:][known])}
        last, first = last.float(), first.detach().float()
        if self.weights["ranking"]:
            ends = last[torch.arange(len(last))[:, None], answers[:, 1:] - 1]
            score_a, score_b = self.heads["score"](ends).squeeze(-1).unbind(1)
            ranked = functional.logsigmoid(lead.sign() * (score_a - score_b))
            losses["ranking"] = -(lead.abs() * ranked).mean()
        is_image = inputs["input_ids"] == self.image_token
        if self.weights["contrast"]:
            losses["contrast"] = self._contrast(last, is_image, answers)
        if self.weights["features"]:
            places = torch.arange(is_image.shape[1], device=is_image.device)
            seen = is_image & (places >= answers[:, :1]) & (places < answers[:, 2:])
            wanted = functional.layer_norm(first[seen], first.shape[-1:])
            losses["features"] = functional.mse_loss(self.heads["features"](last[seen]), wanted)
        for name, loss in losses.items():
            self.losses[name].append(float(loss.detach()))
        return {"loss": sum(self.weights[name] * loss for name, loss in losses.items())}

    def _contrast(
        self, last: torch.Tensor, is_image: torch.Tensor, answers: torch.Tensor
    ) -> torch.Tensor:
        """InfoNCE over all images of the batch's answers that follow a text."""
        images, texts = [], []
        battles = zip(last, is_image, answers.tolist(), strict=True)
        for states, seen, (begin, middle, end) in battles:
            for span in (slice(begin, middle), slice(middle, end)):
                kinds, lengths = torch.unique_consecutive(seen[span], return_counts=True)
                runs = list(states[span].split(lengths.tolist()))
                for text, image, is_one in zip(runs, runs[1:], kinds[1:], strict=False):
                    texts += [text.mean(0)] if is_one else []
                    images += [image.mean(0)] if is_one else []
        if len(images) < 2:  # nothing to tell apart
            return last.sum() * 0
        pictured = functional.normalize(self.heads["image"](torch.stack(images)), dim=-1)
        described = functional.normalize(self.heads["text"](torch.stack(texts)), dim=-1)
        wanted = torch.arange(len(images), device=last.device)
        return functional.cross_entropy(pictured @ described.T / TEMPERATURE, wanted)


class JudgeTrainer(Trainer):
    """A Trainer that logs each loss."""

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """With the mean of every loss since the last line."""
        for name, values in self.model.losses.items():
            if values:
                logs[name] = sum(values) / len(values)
                values.clear()
        super().log(logs, *arguments, **options)


def main() -> None:
    """Read the options, train, save."""
    parser = argparse.ArgumentParser(description="Train a judge on battles.")
    parser.add_argument("battles", type=Path, help="folder that `cepbench arena training` wrote")
    parser.add_argument("--model", required=True, help="checkpoint or name of the start")
    parser.add_argument("--out", type=Path, required=True, help="folder for the judge")
    parser.add_argument("--rank", type=int, default=16, help="of LoRA; 0 trains all weights")
    defaults = {"verdict": 1.0, "ranking": 0.5, "contrast": 0.0, "features": 0.0}
    for name, weight in defaults.items():
        parser.add_argument(f"--{name}", type=float, default=weight, help="weight of this loss")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--steps", type=int, default=-1, help="instead of epochs")
    parser.add_argument("--rate", type=float, default=1e-4, help="peak of the learning rate")
    parser.add_argument("--batch", type=int, default=1, help="battles at a time on a device")
    parser.add_argument("--accumulate", type=int, default=8, help="batches to a step")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    options = parser.parse_args()
    try:
        lines = (options.battles / "train.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        parser.error(f"{error}: `cepbench arena training` writes it")
    rows = [without_empty_texts(json.loads(line)) for line in lines]

    on_gpu = torch.cuda.is_available()
    processor = AutoProcessor.from_pretrained(options.model)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    model = AutoModelForImageTextToText.from_pretrained(options.model, dtype=dtype)
    if options.rank:
        import peft

        config = peft.LoraConfig(
            r=options.rank,
            lora_alpha=2 * options.rank,
            target_modules="all-linear",
            exclude_modules=r".*(visual|vision).*",  # the tower is left as it is
        )
        model = peft.get_peft_model(model, config)
    trainer = JudgeTrainer(
        model=Judge(model, {name: getattr(options, name) for name in defaults}),
        args=TrainingArguments(
            output_dir=str(options.out / "training"),
            per_device_train_batch_size=options.batch,
            gradient_accumulation_steps=options.accumulate,
            num_train_epochs=options.epochs,
            max_steps=options.steps,
            learning_rate=options.rate,
            lr_scheduler_type="cosine",
            warmup_steps=10,
            bf16=on_gpu,
            logging_steps=10,
            save_total_limit=2,
            remove_unused_columns=False,
            report_to="none",
        ),
        train_dataset=rows,
        data_collator=Battles(processor, options.battles),
    )
    trainer.model_accepts_loss_kwargs = False  # or the losses of a step are summed, not averaged
    trainer.train(resume_from_checkpoint=options.resume or None)
    if options.rank:
        model = model.merge_and_unload()
    model.save_pretrained(options.out)
    processor.save_pretrained(options.out)


if __name__ == "__main__":
    main()
