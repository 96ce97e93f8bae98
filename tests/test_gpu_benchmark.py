"""benchmarks/gpu.py runs where there is no GPU, on a model too small to say anything of speed."""

from __future__ import annotations

import json

import pytest
from tests.oracles import oracle

pytestmark = pytest.mark.oracle("torch")
torch = oracle("torch")


def test_the_benchmark_measures_every_precision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from benchmarks import gpu

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    gpu.main(["--device", "cpu", "--small"])
    torch.set_num_threads(before)
    decoder, text, found = json.JSONDecoder(), capsys.readouterr().out, []
    while text.strip():
        record, end = decoder.raw_decode(text)
        found.append(record)
        text = text[end:].lstrip()
    assert [record["precision"] for record in found] == ["float32", "tf32", "bfloat16"]
    for record in found:
        rates = [value for name, value in record.items() if name.endswith("tokens/s")]
        assert len(rates) == 3
        assert all(quartile > 0 for rate in rates for quartile in rate)


def test_a_device_that_is_not_there_is_an_error_in_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from benchmarks import gpu

    with pytest.raises(SystemExit) as ended:
        gpu.main(["--device", "sofa"])
    assert ended.value.code == 2
    assert "--device sofa: expected" in capsys.readouterr().err
