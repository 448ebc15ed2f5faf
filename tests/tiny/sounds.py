"""Tiny checkpoints that read or make sounds, with random weights, saved as their libraries do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tiny.common import CHAT_TEMPLATE, LAYERS, SPECIAL, WORDS, built_once, word_tokenizer
from tests.tiny.describers import TEXT
from tests.tiny.encoders import word_tokenizer as text_tokenizer

RATE = 16_000
"""Of all of them, in Hz."""

SECONDS = 3
"""What those read at most that have windows of a fixed length."""

_LETTERS = " abcdefghijklmnopqrstuvwxyz'"

_WAVES: dict[str, Any] = {
    **LAYERS,
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "initializer_range": 0.3,
}


def _window_extractor() -> Any:
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(16, chunk_length=SECONDS, return_attention_mask=True)


@built_once()
def build_whisper(path: Path) -> None:
    """WhisperForConditionalGeneration of one language, which reads windows of `SECONDS`."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    start, plain = "<|startoftranscript|>", "<|notimestamps|>"
    tokenizer = word_tokenizer((*SPECIAL, start), WORDS)
    tokenizer.add_tokens([plain], special_tokens=True)  # tokens after it are times
    config = WhisperConfig(
        vocab_size=len(tokenizer),
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=50 * SECONDS,
        max_target_positions=24,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=tokenizer.convert_tokens_to_ids(start),
        suppress_tokens=None,
        begin_suppress_tokens=None,
        init_std=0.3,
    )
    model = WhisperForConditionalGeneration(config)
    for name, value in (
        ("max_length", 24), ("is_multilingual", False),
        ("no_timestamps_token_id", tokenizer.convert_tokens_to_ids(plain)),
        ("_from_model_config", False),  # else all of the file is made of config.json
    ):  # fmt: skip
        setattr(model.generation_config, name, value)
    model.save_pretrained(path)
    _window_extractor().save_pretrained(path)
    tokenizer.save_pretrained(path)


@built_once()
def build_qwen2_audio(path: Path) -> None:
    """Qwen2AudioForConditionalGeneration with a chat template, which reads windows of `SECONDS`."""
    import transformers

    marks = ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")
    tokenizer = word_tokenizer((*SPECIAL, *marks), WORDS)
    config = transformers.Qwen2AudioConfig(
        audio_config=transformers.Qwen2AudioEncoderConfig(
            num_mel_bins=16,
            d_model=32,
            encoder_layers=1,
            encoder_attention_heads=4,
            encoder_ffn_dim=64,
            max_source_positions=50 * SECONDS,
        ),
        text_config=transformers.Qwen2Config(vocab_size=len(tokenizer), **TEXT),
        audio_token_index=tokenizer.convert_tokens_to_ids(marks[0]),
    )
    transformers.Qwen2AudioForConditionalGeneration(config).save_pretrained(path)
    template = CHAT_TEMPLATE.replace("'image'", "'audio'").replace(
        "IMAGE", "<|audio_bos|><|AUDIO|><|audio_eos|>"
    )
    transformers.Qwen2AudioProcessor(
        feature_extractor=_window_extractor(), tokenizer=tokenizer, chat_template=template
    ).save_pretrained(path)


def _codec(width: float, **options: Any) -> Any:
    from transformers import EncodecConfig

    return EncodecConfig(
        target_bandwidths=[width],
        sampling_rate=RATE,
        num_filters=4,
        hidden_size=16,
        codebook_dim=16,
        num_lstm_layers=1,
        upsampling_ratios=[8, 5, 4, 2],
        **options,
    ).to_dict()


def _draw_codebooks(codec: Any) -> None:
    """Until it is trained, all tokens of a codec sound the same."""
    for name, codebook in codec.named_buffers():
        if name.endswith("codebook.embed"):
            codebook.normal_()


@built_once()
def build_bark(path: Path) -> None:
    """BarkModel, with the tokens that its library's defaults have, and six of them a text."""
    import transformers

    parts = {
        f"{name}_config": {
            "input_vocab_size": read,
            "output_vocab_size": written,
            "hidden_size": 16,
            "num_layers": 1,
            "num_heads": 2,
        }
        for name, read, written in (
            ("semantic", 129_600, 10_048),
            ("coarse_acoustics", 12_096, 12_096),
            ("fine_acoustics", 1_056, 1_056),
        )
    }
    model = transformers.BarkModel(transformers.BarkConfig(**parts, codec_config=_codec(6.0)))
    _draw_codebooks(model.codec_model)
    model.save_pretrained(path)
    settings: dict[str, Any] = {
        "semantic_config": {"do_sample": True, "max_new_tokens": 6},
        "coarse_acoustics_config": {"do_sample": True},
        "fine_acoustics_config": {},
        "codebook_size": 1024,
    }
    (path / "generation_config.json").write_text(json.dumps(settings))
    text_tokenizer().save_pretrained(path)


@built_once()
def build_vits(path: Path) -> None:
    """VitsModel over letters."""
    from transformers import VitsConfig, VitsModel, VitsTokenizer

    signs = {"pad_token": "_", "unk_token": "_"}
    path.mkdir(parents=True, exist_ok=True)
    file = path / "vocab.json"  # saved again by the tokenizer, which is made of it
    file.write_text(json.dumps({entry: i for i, entry in enumerate("_" + _LETTERS)}))
    tokenizer = VitsTokenizer(str(file), **signs, phonemize=False, normalize=True)
    config = VitsConfig(
        vocab_size=len(_LETTERS) + 1,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
        flow_size=16,
        spectrogram_bins=9,
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=1,
        posterior_encoder_num_wavenet_layers=1,
        duration_predictor_num_flows=2,
        duration_predictor_filter_channels=16,
        duration_predictor_flow_bins=4,
        depth_separable_num_layers=1,
        wavenet_dropout=0.0,
        upsample_initial_channel=16,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        speaking_rate=4.0,
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        sampling_rate=RATE,
    )
    VitsModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)


@built_once()
def build_musicgen(path: Path) -> None:
    """MusicgenForConditionalGeneration, which writes ten tokens unless it is told otherwise."""
    import transformers

    tokenizer = text_tokenizer()
    codes = 32
    text = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4
    )
    config = transformers.MusicgenConfig(
        text_encoder=text.to_dict(),
        audio_encoder=_codec(1.0, codebook_size=codes),
        decoder=transformers.MusicgenDecoderConfig(
            vocab_size=codes,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            ffn_dim=64,
            num_codebooks=2,
            pad_token_id=codes,
            bos_token_id=codes,
        ).to_dict(),
    )
    model = transformers.MusicgenForConditionalGeneration(config)
    _draw_codebooks(model.audio_encoder)
    for name, value in (
        ("max_length", 10), ("do_sample", True), ("guidance_scale", 3.0),
        ("decoder_start_token_id", codes), ("pad_token_id", codes), ("_from_model_config", False),
    ):  # fmt: skip
        setattr(model.generation_config, name, value)
    model.save_pretrained(path)
    transformers.EncodecFeatureExtractor(sampling_rate=RATE).save_pretrained(path)
    tokenizer.save_pretrained(path)


@built_once()
def build_clap(path: Path, *, fusion: bool = False) -> None:
    """ClapModel: sounds and texts in one space of 24 dimensions; reads at most 2 s of a sound.

    fusion: whether it also looks at the whole of longer sounds.
    """
    from transformers import ClapConfig, ClapFeatureExtractor, ClapModel

    tokenizer = text_tokenizer()
    config = ClapConfig(
        text_config={
            **LAYERS, "vocab_size": len(tokenizer), "max_position_embeddings": 40,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
        },
        audio_config={
            "spec_size": 128, "window_size": 2, "num_mel_bins": 32, "patch_size": 4,
            "patch_stride": [4, 4], "patch_embeds_hidden_size": 8, "hidden_size": 64,
            "depths": [1, 1, 1, 1], "num_attention_heads": [2, 2, 2, 2], "num_classes": 4,
            "enable_fusion": fusion, "aff_block_r": 2,
        },
        projection_dim=24,
    )  # fmt: skip
    ClapModel(config).save_pretrained(path)
    ClapFeatureExtractor(
        feature_size=32,
        sampling_rate=RATE,
        hop_length=160,
        max_length_s=2,
        fft_window_size=512,
        frequency_max=8000,
        truncation="fusion" if fusion else "rand_trunc",
        padding="repeatpad",
    ).save_pretrained(path)
    tokenizer.save_pretrained(path)


@built_once()
def build_wav2vec2(path: Path, *, kind: str = "Wav2Vec2") -> None:
    """A model of waves without a head. kind: Wav2Vec2 or Hubert."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**_WAVES)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(path)
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=True)
    extractor.save_pretrained(path)


@built_once()
def build_ast(path: Path) -> None:
    """ASTModel, which reads at most 128 frames (1.295 s) of a sound."""
    from transformers import ASTConfig, ASTFeatureExtractor, ASTModel

    ASTModel(ASTConfig(**LAYERS, max_length=128, num_mel_bins=32)).save_pretrained(path)
    ASTFeatureExtractor(max_length=128, num_mel_bins=32).save_pretrained(path)


DESCRIBERS: dict[str, Callable[[Path], Path]] = {
    "whisper": build_whisper,
    "qwen2-audio": build_qwen2_audio,
}
ENCODERS: dict[str, Callable[[Path], Path]] = {
    "clap": build_clap,
    "wav2vec2": build_wav2vec2,
    "ast": build_ast,
}
