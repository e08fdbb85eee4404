// The prose of docs/config.md; the tables after it come from fields().
#pragma once

#include <string_view>

namespace tessera {

inline constexpr std::string_view kConfigGuide = R"guide(# Configuration

<!-- Written by `tessera config docs`; edit src/config/config_guide.h or the table in src/config/fields.cpp instead. -->

A run is described by one YAML file and by overrides on the command line. Every setting has a default, so a config holds only what differs:

```yaml
model:
  preset: char
data:
  train: text.txt
  tokenizer: char
train:
  max_steps: 2000
  eval_every: 250
```

```sh
tessera config ls                                    # the configs that come with the program
tessera config cp quickstart my.yaml                 # one of your own
tessera config validate my.yaml optim.lr=1e-3        # everything that is wrong with it, at once
tessera train my.yaml optim.lr=1e-3 --cfg            # every setting, its value and where it comes from
```

## Notation
- Numbers are written as in `300`, `0.1`, `3e-4`; no `1_000`. Truth is `true` or `false`; nothing else. Quotes make a value text.
- Intervals are numbers of steps (`500`) or text such as `3 epochs` or `0.5 epochs`; `0` is never.
- Paths in a file are relative to the file's folder, those on the command line to the working folder. `~` is the home folder. `builtin`, `byte`, `char`, `bpe:N` and `hub:REPO` are names, not paths: write `./char` for a folder of that name. Globs (`shards/*.txt`) are expanded when the data is read.
- `${env:NAME}` is the environment variable NAME, `${env:NAME,default}` has a default for where it is not set; a relative path that begins with a variable's value is relative to the working folder. Inside `[…]` such a text needs quotes. `$${` stands for `${` itself.

## Composition
`defaults:` names files that come first, in order; the file's own settings win over theirs:

```yaml
defaults:
  - quickstart        # a shipped config, or a file beside this one
  - ../base.yaml      # a path
  - model: gpt2-xl    # one group, from model/gpt2-xl.yaml
train:
  max_steps: 100
```

Names are looked up in `--config-dir`, in the config's folder, and among the shipped configs.
Of two settings where one replaces several others, the one given later holds: `model.preset` after `model.n_layer` in a base file replaces it; numbers in the same file as the preset, or after it, change single sizes. The same goes for `model.dropout` and the three sites.

## Overrides
Arguments after the config, applied in order, after all files:

| form | does |
|---|---|
| `optim.lr=3e-4` | sets a value; everything after `=` is the value, so quote it for the shell only |
| `optim.betas=[0.9,0.99]` | a list |
| `run.notes="'[draft]'"` | a text that would be read as a list otherwise |
| `~optim.lr` | back to the default |
| `~optim` | the whole group back to its defaults |
| `model=gpt2-xl` | a group from a file, as under `defaults:`; a path ends in `.yaml` |
| `model={n_layer: 2, n_head: 2}` | several settings of a group |

## Errors
Unknown keys, duplicate keys, wrong types and values out of range are all reported at once, each with `file:line:column: key: message`, and the command ends with code 2. Contradictions between settings come together as well, once each value by itself is right:

```text
my.yaml:2:3: model.n_layr: unknown key. Did you mean 'model.n_layer'?
my.yaml:5:7: optim.lr: must be a number, not 'fast'.
error: 2 mistakes in the configuration; the first: my.yaml:2:3: model.n_layr: unknown key. Did you mean 'model.n_layer'?
```

## Resume
A run that is started again goes on from its newest checkpoint. Settings may have changed in between; the column *resume* says what then happens: **free** takes the new value; **warn** takes it and says so, since the results differ from those of an unchanged run; **refuse** stops, since it would be another run (start one with another `run.name`, or with `--resume-from`).

## Settings
)guide";

}  // namespace tessera
