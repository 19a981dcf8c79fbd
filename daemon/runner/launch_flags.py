"""Every flag of llama-server, and what becomes of a launch that has it.

A flag is *served* (`launch_arguments` reads it), asks for *nothing* here, because it changes neither an answer nor its
time, or makes the launch *stock's*. None is taken and ignored. What an environment variable says counts as if it stood
before the command line, as in llama-server. docs/compatibility.md shows this list, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

_TRUE, _FALSE = ("on", "enabled", "true", "1"), ("off", "disabled", "false", "0")


class Handling(StrEnum):
    """What becomes of a flag."""

    SERVED = "served"
    NOTHING = "nothing to do"
    STOCK = "stock"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag with all its names. `usual` are the values with which one of stock's asks for nothing."""

    names: tuple[str, ...]
    values: int  # words that follow it
    variables: tuple[str, ...]  # of the environment, that mean the same
    usual: tuple[str, ...]
    handling: Handling
    about: str

    @property
    def name(self) -> str:
        """The first long one."""
        return next(name for name in self.names if name.startswith("--"))

    @property
    def says_no(self) -> bool:
        """Whether a variable means this flag by saying no."""
        return self.name.startswith("--no-") and not any("_NO_" in variable for variable in self.variables)


_LISTED: tuple[tuple[Handling, str, str], ...] = (
    (Handling.SERVED, "the model and what the server calls it", """
        -m --model N LLAMA_ARG_MODEL, -a --alias N LLAMA_ARG_ALIAS
     """),
    (Handling.SERVED, "where it listens: one address", """
        --host N LLAMA_ARG_HOST, --port N LLAMA_ARG_PORT
     """),
    (Handling.SERVED, "the context, in tokens over all slots; left open, or 0, it is 4,096, not the model's", """
        -c --ctx-size N LLAMA_ARG_CTX_SIZE
     """),
    (Handling.SERVED, "the slots, each with its share of the context; stock's where no lane holds as many", """
        -np --parallel N LLAMA_ARG_N_PARALLEL
     """),
    (Handling.SERVED, "memory for conversations that slots gave up, and which slot a prompt gets", """
        -cram --cache-ram N LLAMA_ARG_CACHE_RAM, -sps --slot-prompt-similarity N
     """),
    (Handling.SERVED, "threads of the engine", """
        -t --threads N LLAMA_ARG_THREADS
     """),
    (Handling.SERVED, "tokens in a block of a prompt; a certified lane may have a block of its own", """
        -b --batch-size N LLAMA_ARG_BATCH
     """),
    (Handling.SERVED, "layers on accelerators, and one of them only", """
        -ngl --gpu-layers --n-gpu-layers N LLAMA_ARG_N_GPU_LAYERS, -sm --split-mode N LLAMA_ARG_SPLIT_MODE,
        -mg --main-gpu N LLAMA_ARG_MAIN_GPU
     """),
    (Handling.SERVED, "the caches' types and flash attention; left open, the lane chooses them", """
        -ctk --cache-type-k N LLAMA_ARG_CACHE_TYPE_K, -ctv --cache-type-v N LLAMA_ARG_CACHE_TYPE_V,
        -fa --flash-attn N LLAMA_ARG_FLASH_ATTN
     """),
    (Handling.SERVED, "a projector: requests with images or sound are the stock server's, beside the runner", """
        -mm --mmproj N LLAMA_ARG_MMPROJ
     """),
    (Handling.SERVED, "a draft model that is complete: it drafts in the lane, as the drafter `llama`", """
        --spec-draft-model -md --model-draft N LLAMA_ARG_SPEC_DRAFT_MODEL
     """),
    (Handling.SERVED, "how weights are read: `auto`, `mmap`, `none` and `dio`", """
        -lm --load-mode N LLAMA_ARG_LOAD_MODE, --mmap, --no-mmap
     """),
    (Handling.SERVED, "the chat template: `chatml` or a template's text", """
        --chat-template N LLAMA_ARG_CHAT_TEMPLATE, --chat-template-file N LLAMA_ARG_CHAT_TEMPLATE_FILE
     """),
    (Handling.SERVED, "what holds for requests that do not say otherwise", """
        -n --predict --n-predict N LLAMA_ARG_N_PREDICT, --keep N, --context-shift LLAMA_ARG_CONTEXT_SHIFT,
        --no-context-shift LLAMA_ARG_CONTEXT_SHIFT, --cache-prompt LLAMA_ARG_CACHE_PROMPT,
        --no-cache-prompt LLAMA_ARG_CACHE_PROMPT
     """),
    (Handling.NOTHING, "logging, which has a form of its own", """
        -v --verbose --log-verbose, -lv --verbosity --log-verbosity N LLAMA_ARG_LOG_VERBOSITY, --log-disable,
        --log-file N LLAMA_ARG_LOG_FILE, --log-jsonl LLAMA_ARG_LOG_JSONL, --no-log-jsonl LLAMA_ARG_LOG_JSONL,
        --log-colors N LLAMA_ARG_LOG_COLORS, --log-prefix LLAMA_ARG_LOG_PREFIX, --no-log-prefix LLAMA_ARG_LOG_PREFIX,
        --log-timestamps LLAMA_ARG_LOG_TIMESTAMPS, --no-log-timestamps LLAMA_ARG_LOG_TIMESTAMPS, --perf LLAMA_ARG_PERF,
        --no-perf LLAMA_ARG_PERF
     """),
    (Handling.NOTHING, "the web page, which is not served", """
        --ui --webui LLAMA_ARG_UI, --no-webui --no-ui LLAMA_ARG_UI, --ui-config --webui-config N LLAMA_ARG_UI_CONFIG,
        --ui-config-file --webui-config-file N LLAMA_ARG_UI_CONFIG_FILE,
        --no-webui-mcp-proxy --no-ui-mcp-proxy LLAMA_ARG_UI_MCP_PROXY, -no-ag --no-agent LLAMA_ARG_AGENT
     """),
    (Handling.NOTHING, "what is so here anyway, or changes no answer and no time here", """
        --offline LLAMA_ARG_OFFLINE, --jinja LLAMA_ARG_JINJA, --no-jinja LLAMA_ARG_JINJA,
        --prefill-assistant LLAMA_ARG_PREFILL_ASSISTANT, --warmup, --no-warmup,
        -cb --cont-batching LLAMA_ARG_CONT_BATCHING, -kvo --kv-offload LLAMA_ARG_KV_OFFLOAD, --repack LLAMA_ARG_REPACK,
        --op-offload, -no-kvu --no-kv-unified LLAMA_ARG_KV_UNIFIED, --cache-idle-slots LLAMA_ARG_CACHE_IDLE_SLOTS,
        -e --escape, --no-escape, --metrics LLAMA_ARG_ENDPOINT_METRICS, --slots LLAMA_ARG_ENDPOINT_SLOTS,
        --no-skip-chat-parsing LLAMA_ARG_SKIP_CHAT_PARSING, --reasoning-preserve LLAMA_ARG_REASONING_PRESERVE,
        --no-reasoning-preserve LLAMA_ARG_REASONING_PRESERVE, --models-autoload LLAMA_ARG_MODELS_AUTOLOAD,
        --no-models-autoload LLAMA_ARG_MODELS_AUTOLOAD
     """),
    (Handling.NOTHING, "the tokens of a block go through the engine together", """
        -ub --ubatch-size N LLAMA_ARG_UBATCH
     """),
    (Handling.NOTHING, "states in the middle of a conversation are not kept", """
        -ctxcp --ctx-checkpoints --swa-checkpoints N LLAMA_ARG_CTX_CHECKPOINTS,
        -cms --checkpoint-min-step N LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT
     """),
    (Handling.NOTHING, "limits of the server's own apply", """
        -to --timeout N LLAMA_ARG_TIMEOUT, --threads-http N LLAMA_ARG_THREADS_HTTP
     """),
    (Handling.NOTHING, "details of images, which the stock server beside the runner is told", """
        --no-mmproj --no-mmproj-auto LLAMA_ARG_MMPROJ_AUTO, --mmproj-auto LLAMA_ARG_MMPROJ_AUTO,
        --mmproj-offload LLAMA_ARG_MMPROJ_OFFLOAD, --no-mmproj-offload LLAMA_ARG_MMPROJ_OFFLOAD,
        -mmdev --mmproj-device N MTMD_BACKEND_DEVICE, --image-min-tokens N LLAMA_ARG_IMAGE_MIN_TOKENS,
        --image-max-tokens N LLAMA_ARG_IMAGE_MAX_TOKENS, --mtmd-batch-max-tokens N LLAMA_ARG_MTMD_BATCH_MAX_TOKENS,
        --video-fps N LLAMA_ARG_VIDEO_FPS, --video-timestamp-interval N LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL,
        --video-ffmpeg-dir N LLAMA_ARG_VIDEO_FFMPEG_DIR
     """),
    (Handling.NOTHING, "downloads, of which there are none", """
        -hft --hf-token N HF_TOKEN
     """),
    (Handling.NOTHING, "fitting what was left open to a device's memory", """
        -fit --fit N LLAMA_ARG_FIT, -fitt --fit-target N LLAMA_ARG_FIT_TARGET, -fitc --fit-ctx N LLAMA_ARG_FIT_CTX
     """),
    (Handling.NOTHING, "details of a draft model: what is drafted is decided by measurement", """
        --spec-draft-n-max N LLAMA_ARG_SPEC_DRAFT_N_MAX, --spec-draft-n-min N LLAMA_ARG_SPEC_DRAFT_N_MIN,
        --spec-draft-p-min --draft-p-min N LLAMA_ARG_SPEC_DRAFT_P_MIN,
        --spec-draft-p-split --draft-p-split N LLAMA_ARG_SPEC_DRAFT_P_SPLIT,
        --spec-draft-backend-sampling LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING,
        --no-spec-draft-backend-sampling LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING,
        --spec-draft-sampling N LLAMA_ARG_SPEC_DRAFT_SAMPLING,
        --spec-draft-type-k -ctkd --cache-type-k-draft N LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K,
        --spec-draft-type-v -ctvd --cache-type-v-draft N LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V,
        --spec-draft-threads -td --threads-draft N, --spec-draft-threads-batch -tbd --threads-batch-draft N,
        --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft N LLAMA_ARG_N_GPU_LAYERS_DRAFT,
        --spec-draft-device -devd --device-draft N
     """),
    (Handling.STOCK, "llama-server's own speculation is not done here", """
        --spec-type N LLAMA_ARG_SPEC_TYPE =none =draft-simple,
        --spec-draft-hf -hfd -hfrd --hf-repo-draft N LLAMA_ARG_SPEC_DRAFT_HF_REPO,
        --spec-draft-cpu-mask -Cd --cpu-mask-draft N, --spec-draft-cpu-range -Crd --cpu-range-draft N,
        --spec-draft-cpu-strict --cpu-strict-draft N, --spec-draft-prio --prio-draft N,
        --spec-draft-poll --poll-draft N, --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft N,
        --spec-draft-cpu-strict-batch --cpu-strict-batch-draft N, --spec-draft-prio-batch --prio-batch-draft N,
        --spec-draft-poll-batch --poll-batch-draft N, --spec-draft-override-tensor -otd --override-tensor-draft N,
        --spec-draft-cpu-moe -cmoed --cpu-moe-draft LLAMA_ARG_SPEC_DRAFT_CPU_MOE,
        --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft N LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE,
        --spec-synth-len N LLAMA_ARG_SPEC_SYNTH_LEN, --spec-synth-rates N LLAMA_ARG_SPEC_SYNTH_RATES,
        --spec-ngram-mod-n-min N, --spec-ngram-mod-n-max N, --spec-ngram-mod-n-match N, --spec-ngram-simple-size-n N,
        --spec-ngram-simple-size-m N, --spec-ngram-simple-min-hits N, --spec-ngram-map-k-size-n N,
        --spec-ngram-map-k-size-m N, --spec-ngram-map-k-min-hits N, --spec-ngram-map-k4v-size-n N,
        --spec-ngram-map-k4v-size-m N, --spec-ngram-map-k4v-min-hits N,
        --draft --draft-n --draft-max N LLAMA_ARG_DRAFT_MAX, --draft-min --draft-n-min N LLAMA_ARG_DRAFT_MIN,
        --spec-ngram-size-n N, --spec-ngram-size-m N, --spec-ngram-min-hits N, --spec-default,
        -lcs --lookup-cache-static N, -lcd --lookup-cache-dynamic N
     """),
    (Handling.STOCK, "LoRA adapters and control vectors are not applied here", """
        --lora N, --lora-scaled N, --lora-init-without-apply, --control-vector N, --control-vector-scaled N,
        --control-vector-layer-range N N
     """),
    (Handling.STOCK, "images and sound from other places are not served here", """
        -mmu --mmproj-url N LLAMA_ARG_MMPROJ_URL, --media-path N
     """),
    (Handling.STOCK, "embeddings and reranking are not served here", """
        --embedding --embeddings LLAMA_ARG_EMBEDDINGS, --rerank --reranking LLAMA_ARG_RERANKING,
        --pooling N LLAMA_ARG_POOLING, --embd-normalize N
     """),
    (Handling.STOCK, "requests have the sampling options of their own, not the launch's", """
        --samplers N, -s --seed N =-1, --sampler-seq --sampling-seq N, --ignore-eos,
        --temp --temperature N LLAMA_ARG_TEMPERATURE, --top-k N LLAMA_ARG_TOP_K, --top-p N LLAMA_ARG_TOP_P,
        --min-p N LLAMA_ARG_MIN_P, --top-nsigma --top-n-sigma N, --xtc-probability N, --xtc-threshold N,
        --typical --typical-p N, --repeat-last-n N, --repeat-penalty N LLAMA_ARG_REPEAT_PENALTY,
        --presence-penalty N LLAMA_ARG_PRESENCE_PENALTY, --frequency-penalty N LLAMA_ARG_FREQUENCY_PENALTY,
        --dry-multiplier N, --dry-base N, --dry-allowed-length N, --dry-penalty-last-n N, --dry-sequence-breaker N,
        --adaptive-target N, --adaptive-decay N, --dynatemp-range N, --dynatemp-exp N, --mirostat N =0, --mirostat-lr N,
        --mirostat-ent N, -l --logit-bias N, --grammar N, --grammar-file N, -j --json-schema N,
        -jf --json-schema-file N, -bs --backend-sampling LLAMA_ARG_BACKEND_SAMPLING, -r --reverse-prompt N,
        -sp --special, --sse-ping-interval N LLAMA_ARG_SSE_PING_INTERVAL =30
     """),
    (Handling.STOCK, "the engine computes otherwise, or elsewhere, than its certificates know", """
        -tb --threads-batch N =-1, -C --cpu-mask N, -Cr --cpu-range N, --cpu-strict N =0, --prio N =0, --poll N =50,
        -Cb --cpu-mask-batch N, -Crb --cpu-range-batch N, --cpu-strict-batch N =0, --prio-batch N =0, --poll-batch N,
        --swa-full LLAMA_ARG_SWA_FULL, --rope-scaling N LLAMA_ARG_ROPE_SCALING_TYPE,
        --rope-scale N LLAMA_ARG_ROPE_SCALE, --rope-freq-base N LLAMA_ARG_ROPE_FREQ_BASE,
        --rope-freq-scale N LLAMA_ARG_ROPE_FREQ_SCALE, --yarn-orig-ctx N LLAMA_ARG_YARN_ORIG_CTX,
        --yarn-ext-factor N LLAMA_ARG_YARN_EXT_FACTOR, --yarn-attn-factor N LLAMA_ARG_YARN_ATTN_FACTOR,
        --yarn-beta-slow N LLAMA_ARG_YARN_BETA_SLOW, --yarn-beta-fast N LLAMA_ARG_YARN_BETA_FAST,
        -nkvo --no-kv-offload LLAMA_ARG_KV_OFFLOAD, -nr --no-repack LLAMA_ARG_REPACK, --no-host LLAMA_ARG_NO_HOST,
        -dt --defrag-thold N LLAMA_ARG_DEFRAG_THOLD, --rpc N LLAMA_ARG_RPC,
        -lzm --lazy-mode N LLAMA_ARG_LAZY_MODE =auto, --numa N LLAMA_ARG_NUMA, -dev --device N LLAMA_ARG_DEVICE,
        -ot --override-tensor N LLAMA_ARG_OVERRIDE_TENSOR, -cmoe --cpu-moe LLAMA_ARG_CPU_MOE,
        -ncmoe --n-cpu-moe N LLAMA_ARG_N_CPU_MOE, -ncffn --n-cpu-ffn N LLAMA_ARG_N_CPU_FFN,
        -ts --tensor-split N LLAMA_ARG_TENSOR_SPLIT, --check-tensors, --override-kv N, --no-op-offload,
        --kv-unified-per-slot N LLAMA_ARG_KV_UNIFIED_PER_SLOT, -kvu --kv-unified LLAMA_ARG_KV_UNIFIED,
        --no-cache-idle-slots LLAMA_ARG_CACHE_IDLE_SLOTS, -nocb --no-cont-batching LLAMA_ARG_CONT_BATCHING,
        --cache-reuse N LLAMA_ARG_CACHE_REUSE =0, --sleep-idle-seconds N =-1
     """),
    (Handling.STOCK, "models are not downloaded here", """
        -mu --model-url N LLAMA_ARG_MODEL_URL, -dr --docker-repo N LLAMA_ARG_DOCKER_REPO,
        -hf -hfr --hf-repo N LLAMA_ARG_HF_REPO, -hff --hf-file N LLAMA_ARG_HF_FILE, --embd-gemma-default,
        --fim-qwen-1.5b-default, --fim-qwen-3b-default, --fim-qwen-7b-default, --fim-qwen-7b-spec, --fim-qwen-14b-spec,
        --fim-qwen-30b-default, --gpt-oss-20b-default, --gpt-oss-120b-default, --vision-gemma-4b-default,
        --vision-gemma-12b-default
     """),
    (Handling.STOCK, "this server has one model, one address and no keys, pages, files or tools", """
        --tags N LLAMA_ARG_TAGS, --reuse-port LLAMA_ARG_REUSE_PORT, --path N LLAMA_ARG_STATIC_PATH,
        --cors-origins N LLAMA_ARG_CORS_ORIGINS, --cors-methods N LLAMA_ARG_CORS_METHODS,
        --cors-headers N LLAMA_ARG_CORS_HEADERS, --cors-credentials LLAMA_ARG_CORS_CREDENTIALS,
        --no-cors-credentials LLAMA_ARG_CORS_CREDENTIALS, --api-prefix N LLAMA_ARG_API_PREFIX,
        --ui-mcp-proxy --webui-mcp-proxy LLAMA_ARG_UI_MCP_PROXY, --tools N LLAMA_ARG_TOOLS,
        --tools-runtime N LLAMA_ARG_TOOLS_RUNTIME, --mcp-servers-config N LLAMA_ARG_MCP_SERVERS_CONFIG,
        --mcp-servers-json N LLAMA_ARG_MCP_SERVERS_JSON, -ag --agent LLAMA_ARG_AGENT, --api-key N LLAMA_API_KEY,
        --api-key-file N LLAMA_ARG_API_KEY_FILE, --ssl-key-file N LLAMA_ARG_SSL_KEY_FILE,
        --ssl-cert-file N LLAMA_ARG_SSL_CERT_FILE, --props LLAMA_ARG_ENDPOINT_PROPS,
        --no-slots LLAMA_ARG_ENDPOINT_SLOTS, --slot-save-path N, --models-dir N LLAMA_ARG_MODELS_DIR,
        --models-preset N LLAMA_ARG_MODELS_PRESET, --models-max N LLAMA_ARG_MODELS_MAX, --log-prompts-dir N
     """),
    (Handling.STOCK, "chats are rendered by the template alone", """
        --chat-template-kwargs N LLAMA_ARG_CHAT_TEMPLATE_KWARGS, --reasoning-format N LLAMA_ARG_THINK =auto,
        -rea --reasoning N LLAMA_ARG_REASONING =auto, --reasoning-effort N LLAMA_ARG_REASONING_EFFORT =default,
        --reasoning-budget N LLAMA_ARG_THINK_BUDGET =-1, --reasoning-budget-message N LLAMA_ARG_THINK_BUDGET_MESSAGE,
        --skip-chat-parsing LLAMA_ARG_SKIP_CHAT_PARSING, --no-prefill-assistant LLAMA_ARG_PREFILL_ASSISTANT,
        --spm-infill
     """),
    (Handling.STOCK, "the stock server answers this and ends", """
        -h --help --usage, --version, -cl --cache-list, --completion-bash, --list-devices
     """),
)  # fmt: skip


def _read() -> Iterator[Flag]:
    for handling, about, lines in _LISTED:
        for words in (flag.split() for flag in lines.split(",")):
            yield Flag(
                names=tuple(word for word in words if word.startswith("-")),
                values=words.count("N"),
                variables=tuple(word for word in words if "_" in word),
                usual=tuple(word[1:] for word in words if word.startswith("=")),
                handling=handling,
                about=about,
            )


FLAGS = tuple(_read())
BY_NAME: Mapping[str, Flag] = {name: flag for flag in FLAGS for name in flag.names}


def words_of(environment: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """What the variables say: each one's name, and the words of the flag that means the same."""
    for flag in FLAGS:
        for variable in flag.variables:
            value = environment.get(variable, "")
            older = variable.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")  # says no, whatever its value
            if flag.values:
                if value:
                    yield variable, [flag.name, value]
            elif older in environment:
                if flag.says_no:
                    yield older, [flag.name]
            elif value.lower() in (_FALSE if flag.says_no else _TRUE):
                yield variable, [flag.name]
