"""Audio: torchaudio, speechbrain, asteroid, julius and others, from features to source separation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from packages_example import BATCH, SOUND, Example, Factory, Function, sound
from torch import nn

__all__ = ["MODULES"]

FEATURES = {0: "batch", 1: "frames"}


def _transform(name: str, *, length: int = 4000, **options: Any) -> Example:
    from torchaudio import transforms

    return sound(getattr(transforms, name)(**options), length)


def _inverse_spectrogram() -> Example:
    from torchaudio.transforms import InverseSpectrogram

    spectrogram = torch.stft(torch.randn(2, 2000), 256, window=torch.hann_window(256), return_complex=True)
    return Example(InverseSpectrogram(256).eval(), (spectrogram,), {}, ({0: "batch", 2: "frames"},))


def _loudness() -> Example:
    from torchaudio.transforms import Loudness

    return Example(Loudness(16000).eval(), (0.3 * torch.randn(1, 12000),), {}, ({1: "time"},))


def _lowpass() -> Example:
    from torchaudio.functional import lowpass_biquad

    return sound(Function(lowpass_biquad, sample_rate=16000, cutoff_freq=3000.0), 800)


def _hdemucs() -> Example:
    from torchaudio.models import HDemucs

    model = HDemucs(["vocals", "other"], channels=8, nfft=1024, depth=5, dconv_attn=3, dconv_lstm=3)
    return sound(model, 12000, channels=2, batch=1)


def _conv_tasnet() -> Example:
    from torchaudio.models import ConvTasNet

    model = ConvTasNet(
        2, enc_num_feats=24, msk_num_feats=12, msk_num_hidden_feats=24, msk_num_layers=2, msk_num_stacks=2
    )
    return sound(model, 1600, channels=1, batch=1)


def _conformer() -> Example:
    from torchaudio.models import Conformer

    args = (torch.randn(2, 20, 16), torch.tensor([20, 15]))
    return Example(Conformer(16, 2, 24, 2, 5).eval(), args, {}, (FEATURES, BATCH), fresh=_padded)


def _padded(sizes: Mapping[str, int], seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Padded features: the longest of the batch has all frames."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(sizes["batch"], sizes["frames"], 16, generator=generator)
    lengths = torch.randint(1, sizes["frames"] + 1, (sizes["batch"],), generator=generator)
    lengths[0] = sizes["frames"]
    return (features, lengths), {}


def _emformer() -> Example:
    from torchaudio.models import Emformer

    model = Emformer(16, 2, 24, 2, segment_length=4, left_context_length=8, right_context_length=2)
    args = (torch.randn(2, 26, 16), torch.tensor([24, 18]))
    return Example(model.eval(), args, {}, (FEATURES, BATCH))


def _wav2vec2() -> Example:
    from torchaudio.models import wav2vec2_model

    model = wav2vec2_model(
        extractor_mode="group_norm",
        extractor_conv_layer_config=[(16, 10, 5), (16, 3, 2)],
        extractor_conv_bias=False,
        encoder_embed_dim=24,
        encoder_projection_dropout=0.1,
        encoder_pos_conv_kernel=8,
        encoder_pos_conv_groups=4,
        encoder_num_layers=2,
        encoder_num_heads=2,
        encoder_attention_dropout=0.1,
        encoder_ff_interm_features=32,
        encoder_ff_interm_dropout=0.1,
        encoder_dropout=0.1,
        encoder_layer_norm_first=False,
        encoder_layer_drop=0.0,
        aux_num_out=12,
    )
    lengths = torch.tensor([1600, 1200])
    return Example(model.eval(), (torch.randn(2, 1600), lengths), {}, (SOUND, BATCH))


def _squim() -> Example:
    from torchaudio.models import squim_objective_model

    model = squim_objective_model(
        feat_dim=16, win_len=32, d_model=16, nhead=2, hidden_dim=16, num_blocks=1, rnn_type="LSTM", chunk_size=11
    )
    return sound(model, 2000)


def _julius_resample() -> Example:
    from julius import ResampleFrac

    return sound(ResampleFrac(16000, 11025), 4000)


def _julius_fft_conv() -> Example:
    from julius import FFTConv1d

    return sound(FFTConv1d(2, 3, 129, padding=64), 2000, channels=2)


def _htdemucs() -> Example:
    from demucs.htdemucs import HTDemucs

    model = HTDemucs(
        ["vocals", "other"], channels=8, nfft=1024, depth=4, t_layers=2, t_heads=2, bottom_channels=32, segment=1
    )
    model.use_train_segment = False
    return sound(model, 12000, channels=2, batch=1)


def _seanet() -> Example:
    from encodec.modules import SEANetEncoder

    return sound(SEANetEncoder(dimension=16, n_filters=4, ratios=[4, 2], lstm=1), 1600, channels=1)


def _asteroid(name: str, **options: Any) -> Example:
    from asteroid import models

    return sound(getattr(models, name)(2, **options), 2000)


def _filterbank(name: str) -> Example:
    import asteroid_filterbanks as filterbanks

    bank = getattr(filterbanks, name)(n_filters=64, kernel_size=65 if name == "ParamSincFB" else 64, stride=32)
    return sound(filterbanks.Encoder(bank), 1600, channels=1)


def _filterbank_round_trip() -> Example:
    import asteroid_filterbanks as filterbanks

    encoder = filterbanks.Encoder(filterbanks.STFTFB(64, 64, stride=32))
    decoder = filterbanks.Decoder(filterbanks.STFTFB(64, 64, stride=32))
    return sound(nn.Sequential(encoder, decoder), 1600, channels=1)


def _speechbrain_fbank() -> Example:
    from speechbrain.lobes.features import Fbank

    return sound(Fbank(n_mels=40, deltas=True), 4000)


def _ecapa() -> Example:
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    model = ECAPA_TDNN(
        20, lin_neurons=16, channels=[16, 16, 16, 16, 48], attention_channels=8, res2net_scale=4, se_channels=8
    )
    args = (torch.randn(2, 50, 20), torch.tensor([1.0, 0.8]))
    return Example(model.eval(), args, {}, (FEATURES, BATCH))


def _sinc_conv() -> Example:
    from speechbrain.nnet.CNN import SincConv

    return sound(SincConv(out_channels=8, kernel_size=65, in_channels=1), 1600)


def _crdnn() -> Example:
    from speechbrain.lobes.models.CRDNN import CRDNN

    model = CRDNN(
        input_size=16,
        cnn_blocks=1,
        cnn_channels=[4],
        inter_layer_pooling_size=[2],
        rnn_layers=1,
        rnn_neurons=12,
        dnn_blocks=1,
        dnn_neurons=10,
    )
    return Example(model.eval(), (torch.randn(2, 24, 16),), {}, (FEATURES,))


def _hifigan() -> Example:
    from speechbrain.lobes.models.HifiGAN import HifiganGenerator

    model = HifiganGenerator(
        in_channels=16,
        out_channels=1,
        resblock_type="1",
        resblock_dilation_sizes=[[1, 3, 5], [1, 3, 5]],
        resblock_kernel_sizes=[3, 5],
        upsample_kernel_sizes=[8, 4],
        upsample_initial_channel=16,
        upsample_factors=[4, 2],
        inference_padding=0,
    )
    return Example(model.eval(), (torch.randn(2, 16, 20),), {}, ({0: "batch", 2: "frames"},))


class _Encoder(nn.Module):
    """The Conformer of SpeechBrain with its positions, as its recipes build it."""

    def __init__(self) -> None:
        from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder
        from speechbrain.nnet.attention import RelPosEncXL

        super().__init__()
        self.positions = RelPosEncXL(16)
        self.encoder = ConformerEncoder(num_layers=2, d_model=16, d_ffn=24, nhead=2, kernel_size=5)

    def forward(self, features: torch.Tensor) -> Any:
        """Features to encodings."""
        return self.encoder(features, pos_embs=self.positions(features))[0]


def _speechbrain_conformer() -> Example:
    return Example(_Encoder().eval(), (torch.randn(2, 20, 16),), {}, (FEATURES,))


def _nnaudio(name: str, **options: Any) -> Example:
    from nnAudio import features

    return sound(getattr(features, name)(sr=16000, verbose=False, **options), 4000)


def _torchlibrosa() -> Example:
    import torchlibrosa

    spectrogram = torchlibrosa.Spectrogram(n_fft=512, hop_length=160)
    mel = torchlibrosa.LogmelFilterBank(sr=16000, n_fft=512, n_mels=40, top_db=None)
    return sound(nn.Sequential(spectrogram, mel), 4000)


def _vocos() -> Example:
    from vocos.heads import ISTFTHead
    from vocos.models import VocosBackbone

    model = nn.Sequential(VocosBackbone(20, 32, 48, 2), ISTFTHead(32, 256, 64, padding="center"))
    return Example(model.eval(), (torch.randn(2, 20, 24),), {}, ({0: "batch", 2: "frames"},))


def _snac() -> Example:
    from snac import SNAC

    class Encoder(nn.Module):
        """Waveforms to the codes of each level."""

        def __init__(self) -> None:
            super().__init__()
            self.snac = SNAC(
                encoder_dim=8,
                encoder_rates=[2, 4],
                decoder_dim=32,
                decoder_rates=[4, 2],
                attn_window_size=None,
                codebook_size=32,
                vq_strides=[4, 2, 1],
            )

        def forward(self, audio: torch.Tensor) -> Any:
            """``SNAC.encode``, as it is deployed."""
            return self.snac.encode(audio)

    return sound(Encoder(), 1600, channels=1)


def _dac() -> Example:
    from dac import DAC

    model = DAC(
        encoder_dim=8,
        encoder_rates=[2, 4],
        decoder_dim=32,
        decoder_rates=[4, 2],
        n_codebooks=3,
        codebook_size=32,
        sample_rate=16000,
    )
    return sound(model, 1600, channels=1)


def _open_unmix() -> Example:
    from openunmix.model import OpenUnmix

    spectrogram = torch.rand(2, 2, 65, 20)
    model = OpenUnmix(nb_bins=65, nb_channels=2, hidden_size=16, nb_layers=1, max_bin=50)
    return Example(model.eval(), (spectrogram,), {}, ({0: "batch", 3: "frames"},))


def _crepe() -> Example:
    from torchcrepe import Crepe

    return Example(Crepe("tiny").eval(), (torch.randn(3, 1024),), {}, ({0: "frames"},))


def _silero() -> Example:
    import silero_vad

    class Detector(nn.Module):
        """One step of the voice activity detector: a TorchScript model with weights that its package contains."""

        def __init__(self) -> None:
            super().__init__()
            self.model = silero_vad.load_silero_vad()

        def forward(self, chunk: torch.Tensor) -> Any:
            """Chunks of 512 samples to probabilities of speech."""
            self.model.reset_states()
            return self.model(chunk, 16000)

    return Example(Detector().eval(), (torch.randn(1, 512),), {}, (BATCH,))


def _scattering() -> Example:
    from kymatio.torch import Scattering1D

    return Example(Scattering1D(J=4, shape=(1024,), Q=4).eval(), (torch.randn(2, 1024),), {}, (BATCH,))


MODULES: dict[str, Factory] = {
    "torchaudio/Resample": partial(_transform, "Resample", orig_freq=16000, new_freq=11025),
    "torchaudio/PitchShift": partial(_transform, "PitchShift", sample_rate=16000, n_steps=4),
    "torchaudio/MelSpectrogram": partial(_transform, "MelSpectrogram"),
    "torchaudio/MFCC": partial(_transform, "MFCC", length=8000),
    "torchaudio/InverseSpectrogram": _inverse_spectrogram,
    "torchaudio/Loudness": _loudness,
    "torchaudio/lowpass_biquad": _lowpass,
    "torchaudio/HDemucs": _hdemucs,
    "torchaudio/ConvTasNet": _conv_tasnet,
    "torchaudio/Conformer": _conformer,
    "torchaudio/Emformer": _emformer,
    "torchaudio/Wav2Vec2Model": _wav2vec2,
    "torchaudio/SquimObjective": _squim,
    "julius/ResampleFrac": _julius_resample,
    "julius/FFTConv1d": _julius_fft_conv,
    "demucs/HTDemucs": _htdemucs,
    "encodec/SEANetEncoder": _seanet,
    "asteroid/ConvTasNet": partial(
        _asteroid, "ConvTasNet", n_blocks=2, n_repeats=1, bn_chan=8, hid_chan=16, skip_chan=8, n_filters=16
    ),
    "asteroid/DPRNNTasNet": partial(
        _asteroid, "DPRNNTasNet", bn_chan=8, hid_size=8, chunk_size=20, n_repeats=1, n_filters=16
    ),
    "asteroid-filterbanks/ParamSinc": partial(_filterbank, "ParamSincFB"),
    "asteroid-filterbanks/STFT and back": _filterbank_round_trip,
    "speechbrain/Fbank": _speechbrain_fbank,
    "speechbrain/ECAPA_TDNN": _ecapa,
    "speechbrain/SincConv": _sinc_conv,
    "speechbrain/CRDNN": _crdnn,
    "speechbrain/HifiganGenerator": _hifigan,
    "speechbrain/ConformerEncoder": _speechbrain_conformer,
    "nnAudio/CQT1992v2": partial(_nnaudio, "CQT1992v2", fmin=220.0, n_bins=36, hop_length=256),
    "torchlibrosa/log mel": _torchlibrosa,
    "vocos/Vocos": _vocos,
    "snac/SNAC": _snac,
    "descript-audio-codec/DAC": _dac,
    "openunmix/OpenUnmix": _open_unmix,
    "torchcrepe/Crepe": _crepe,
    "silero-vad/VAD": _silero,
    "kymatio/Scattering1D": _scattering,
}
