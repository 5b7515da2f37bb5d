#!/usr/bin/env python3
"""Writes the checkpoint of tests/data/qwen3moe with its three layers repeated: a sound model of any size, 3.5 MB a layer.

    make_checkpoint.py FOLDER LAYERS
"""

import json
import pathlib
import shutil
import struct
import sys

source = pathlib.Path(__file__).parent.parent / "data" / "qwen3moe"
folder, n_layers = pathlib.Path(sys.argv[1]), int(sys.argv[2])
folder.mkdir(parents=True)

header, blobs, end = {}, [], 0
for shard in sorted(source.glob("*.safetensors")):
    data = shard.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    for name, info in json.loads(data[8 : 8 + n]).items():
        if name == "__metadata__":
            continue
        start, stop = info["data_offsets"]
        blob = data[8 + n + start : 8 + n + stop]
        names = [name]
        if name.startswith("model.layers."):
            first, rest = name.removeprefix("model.layers.").split(".", 1)
            names = [f"model.layers.{i}.{rest}" for i in range(int(first), n_layers, 3)]
        for copy in names:
            header[copy] = {**info, "data_offsets": [end, end + len(blob)]}
            end += len(blob)
            blobs.append(blob)

text = json.dumps(header).encode()
with open(folder / "model.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    out.writelines(blobs)
config = json.loads((source / "config.json").read_text())
config["num_hidden_layers"] = n_layers
(folder / "config.json").write_text(json.dumps(config))
for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
    shutil.copy(source / name, folder)
