# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy"]
# ///
"""Fine-tunes a tiny language model to classify reviews, with the `Trainer` of Transformers.

The model is first trained to fill in words, without labels, and saved as a folder in the format of
the Hugging Face hub. A name of a model on the hub in place of the folder is the same code.
"""

import itertools
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

BASE = Path("tiny-bert")
GOOD, BAD = ["superb", "lovely", "clever"], ["dreadful", "boring", "clumsy"]
THINGS = ["film", "book", "song", "play"]
OPENINGS = ["the", "this", "that whole", "my favourite"]
ENDINGS = ["today", "again", "to me", "in the end", "", "for sure"]


def reviews() -> tuple[list[str], list[int]]:
    """Return all reviews in a fixed random order, and for each whether it praises (1)."""
    found = [
        (f"{opening} {thing} was {word} {ending}".strip(), int(word in GOOD))
        for opening, thing, word, ending in itertools.product(OPENINGS, THINGS, [*GOOD, *BAD], ENDINGS)
    ]
    random.Random(0).shuffle(found)
    return [text for text, _ in found], [label for _, label in found]


def arguments(folder: str, epochs: int, rate: float) -> TrainingArguments:
    """Return what both trainings share."""
    return TrainingArguments(
        folder,
        num_train_epochs=epochs,
        per_device_train_batch_size=16,
        learning_rate=rate,
        logging_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )


def pretrain(texts: list[str]) -> float:
    """Make the model and its tokenizer, train it to fill in words, and save both; return the last loss."""
    words = sorted({word for text in texts for word in text.split()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    splitter = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    splitter.pre_tokenizer = pre_tokenizers.Whitespace()
    splitter.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=splitter, **{f"{name}_token": token for name, token in names.items()}
    )
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        initializer_range=0.1,
    )
    model = BertForMaskedLM(config)
    trainer = Trainer(
        model,
        arguments("pretraining", 6, 3e-3),
        train_dataset=[tokenizer(text, return_token_type_ids=False) for text in texts],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.2),
    )
    trainer.train()
    model.save_pretrained(BASE)
    tokenizer.save_pretrained(BASE)
    return float([entry["loss"] for entry in trainer.state.log_history if "loss" in entry][-1])


def fine_tune(epochs: int) -> dict[str, Any]:
    """Train the saved model with a few labels, and test it on the other reviews.

    Args:
        epochs: passes over the reviews with labels.

    Returns:
        A dict of the last `pretraining_loss`; `labelled`, the number of labels that were used; and
        the accuracies on the other reviews, `before` the fine-tuning and `after` it.
    """
    set_seed(0)
    texts, labels = reviews()
    pretraining_loss = pretrain(texts)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForSequenceClassification.from_pretrained(BASE, num_labels=2)
    data = [
        {**tokenizer(text, return_token_type_ids=False), "labels": label}
        for text, label in zip(texts, labels, strict=True)
    ]
    labelled = 64
    trainer = Trainer(
        model,
        arguments("fine-tuning", epochs, 3e-3),
        train_dataset=data[:labelled],
        eval_dataset=data[labelled:],
        processing_class=tokenizer,
        compute_metrics=lambda found: {
            "accuracy": float((found.predictions.argmax(axis=1) == found.label_ids).mean())
        },
    )
    before = trainer.evaluate()["eval_accuracy"]
    trainer.train()
    after = trainer.evaluate()["eval_accuracy"]
    return {"pretraining_loss": pretraining_loss, "labelled": labelled, "before": before, "after": after}


if __name__ == "__main__":
    print(fine_tune(15))
