/* SPDX-License-Identifier: Apache-2.0 */
/* The config.json of a GPT-2. Its keys, their defaults and other names are those of GPT2Config of transformers. */
#include <quadrille_private/input.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/config.h"

typedef enum key_kind { SIZE, EPSILON, ACTIVATION, FIXED, ROUNDING, DROPOUT } key_kind;

typedef struct config_key {
    const char *name;
    key_kind kind;
    const char *alias; /* of a size; of FIXED: what is computed here */
    size_t at; /* of a size */
    int64_t usual; /* what an absent one means; a size of 0: it follows from others */
} config_key;

#define SIZE_AT(member) offsetof(ckpt_gpt2, member)

static const config_key keys[] = {
    {"n_layer", SIZE, "num_hidden_layers", SIZE_AT(sizes.layers), 12},
    {"n_embd", SIZE, "hidden_size", SIZE_AT(sizes.hidden), 768},
    {"n_head", SIZE, "num_attention_heads", SIZE_AT(heads), 12},
    {"n_positions", SIZE, "max_position_embeddings", SIZE_AT(sizes.context), 1024},
    {"vocab_size", SIZE, NULL, SIZE_AT(sizes.vocab), 50257},
    {"n_inner", SIZE, NULL, SIZE_AT(sizes.ffn), 0},
    {"layer_norm_epsilon", EPSILON, NULL, 0, 0},
    {"activation_function", ACTIVATION, NULL, 0, 0},
    {"scale_attn_weights", FIXED, "scores are divided by the root of a head's features", 0, 1},
    {"scale_attn_by_inverse_layer_idx", FIXED, "all blocks scale their scores alike", 0, 0},
    {.name = "reorder_and_upcast_attn", .kind = ROUNDING},
    {"add_cross_attention", FIXED, "a sequence attends to itself alone", 0, 0},
    {"is_encoder_decoder", FIXED, "there is no encoder", 0, 0},
    {.name = "attn_pdrop", .kind = DROPOUT},
    {.name = "embd_pdrop", .kind = DROPOUT},
    {.name = "resid_pdrop", .kind = DROPOUT},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

/* Those that config.c reads, up to tie_word_embeddings, and those of initial weights, of other heads than that of the
 * language model, of how and where it is computed, of generating, of names and versions. */
static const char others[] =
    " architectures auto_map model_type pruned_heads quantization_config tie_word_embeddings initializer_range "
    "summary_activation summary_first_dropout summary_last_dropout summary_proj_to_labels summary_type "
    "summary_use_proj classifier_dropout problem_type num_labels _num_labels id2label label2id finetuning_task "
    "task_specific_params chunk_size_feed_forward gradient_checkpointing is_decoder n_ctx n_special "
    "predict_special_tokens output_attentions output_hidden_states output_past return_dict use_cache "
    "use_return_dict torchscript use_bfloat16 dtype torch_dtype attn_implementation _attn_implementation "
    "_attn_implementation_autoset _name_or_path _commit_hash transformers_version tokenizer_class prefix "
    "bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id bad_words_ids "
    "begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
    "exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length "
    "min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores "
    "remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens temperature top_k top_p "
    "typical_p tie_encoder_decoder cross_attention_hidden_size xla_device ";

static int64_t *size_of(const config_key *key, ckpt_gpt2 *gpt2) { return (int64_t *)(void *)((char *)gpt2 + key->at); }

/* ---- reading ---- */

/* The value as the file has it. */
static ckpt_text value_text(const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const ckpt_text shown = ckpt_show(text ? text : "too long");
    free(text);
    return shown;
}

static int refuse(const ckpt_config *config, const char *key, const json_t *value, const char *remedy, failure *why)
{
    return fail(why, EXIT_USAGE, "%s: %s is %s; %s", ckpt_show(config->path).text, key, value_text(value).text, remedy);
}

/* Adds "key value" to a list. */
static void tell(char *list, size_t bytes, const char *key, const char *value)
{
    const size_t used = strlen(list);
    snprintf(list + used, bytes - used, "%s%s %s", used ? ", " : "", key, value);
}

/* Any other key might change the network. */
static int check_known(const ckpt_config *config, failure *why)
{
    const char *name;
    json_t *value;
    json_object_foreach(config->document, name, value)
    {
        int is_known = json_is_null(value);
        for (int i = 0; i < N_KEYS && !is_known; i++)
            is_known = strcmp(name, keys[i].name) == 0 ||
                       (keys[i].kind == SIZE && keys[i].alias && strcmp(name, keys[i].alias) == 0);
        char word[48];
        const int is_word = snprintf(word, sizeof word, " %s ", name) < (int)sizeof word && !strchr(name, ' ');
        is_known |= is_word && strstr(others, word);
        if (!is_known)
            return refuse(config, ckpt_show(name).text, value,
                          "no such key of a gpt2 is known; take it out if the network is the same without it", why);
    }
    return EXIT_OK;
}

static int read_size(ckpt_config *config, const config_key *key, failure *why)
{
    const json_t *own = json_object_get(config->document, key->name);
    const json_t *other = key->alias ? json_object_get(config->document, key->alias) : NULL;
    const json_t *value = other ? other : own;
    int64_t *size = size_of(key, &config->gpt2);
    char number[32];
    *size = key->usual ? key->usual : 4 * config->gpt2.sizes.hidden;
    if (own && other && !json_equal(own, other))
        return refuse(config, key->alias, other, "the same key by another name says something else; leave one out",
                      why);
    if (key->usual == 0 && json_is_null(value)) return EXIT_OK;
    snprintf(number, sizeof number, "%lld", (long long)*size);
    if (!value && key->usual) tell(config->unsaid, sizeof config->unsaid, key->name, number);
    if (!value) return EXIT_OK;
    *size = json_integer_value(value);
    if (*size < 1 || *size > GPT_MOST)
        return refuse(config, value == own ? key->name : key->alias, value, "a whole number from 1 to 2^30 is needed",
                      why);
    return EXIT_OK;
}

static int read_epsilon(ckpt_config *config, const config_key *key, failure *why)
{
    const json_t *value = json_object_get(config->document, key->name);
    config->gpt2.epsilon = value ? json_number_value(value) : 1e-5;
    if (!value) tell(config->unsaid, sizeof config->unsaid, key->name, "1e-05");
    if (config->gpt2.epsilon > 0 && config->gpt2.epsilon <= 1) return EXIT_OK;
    return refuse(config, key->name, value, "a number above 0, and at most 1, is needed", why);
}

/* The names in ACT2FN of the tanh form with all its digits. */
static int read_activation(ckpt_config *config, const config_key *key, failure *why)
{
    static const char *const names[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate"};
    const json_t *value = json_object_get(config->document, key->name);
    const char *name = json_string_value(value);
    if (!value) tell(config->unsaid, sizeof config->unsaid, key->name, names[0]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!value || (name && strcmp(name, names[i]) == 0)) return EXIT_OK;
    return refuse(config, key->name, value, "only gelu_new and gelu_pytorch_tanh, GELU by tanh, are computed here",
                  why);
}

static int read_fixed(ckpt_config *config, const config_key *key, failure *why)
{
    const json_t *value = json_object_get(config->document, key->name);
    char remedy[160];
    if (!value || (json_is_boolean(value) && json_is_true(value) == key->usual)) return EXIT_OK;
    snprintf(remedy, sizeof remedy, "only %s is computed here: %s", key->usual ? "true" : "false", key->alias);
    return refuse(config, key->name, value, remedy, why);
}

/* The same network: where scores are rounded is this library's own affair. */
static int read_rounding(ckpt_config *config, const config_key *key, failure *why)
{
    const json_t *value = json_object_get(config->document, key->name);
    if (value && !json_is_boolean(value)) return refuse(config, key->name, value, "true or false is needed", why);
    if (json_is_true(value)) tell(config->unapplied, sizeof config->unapplied, key->name, "true");
    return EXIT_OK;
}

static int read_dropout(ckpt_config *config, const config_key *key, failure *why)
{
    const json_t *value = json_object_get(config->document, key->name);
    const double rate = value ? json_number_value(value) : 0.1;
    char number[32];
    if (value && !json_is_number(value)) return refuse(config, key->name, value, "a number is needed", why);
    snprintf(number, sizeof number, "%g", rate);
    if (rate != 0) tell(config->unapplied, sizeof config->unapplied, key->name, number);
    return EXIT_OK;
}

int ckpt_gpt2_read(ckpt_config *config, failure *why)
{
    static int (*const readers[])(ckpt_config *, const config_key *, failure *) = {
        [SIZE] = read_size,   [EPSILON] = read_epsilon,   [ACTIVATION] = read_activation,
        [FIXED] = read_fixed, [ROUNDING] = read_rounding, [DROPOUT] = read_dropout};
    ckpt_gpt2 *gpt2 = &config->gpt2;
    if (check_known(config, why)) return why->code;
    for (int i = 0; i < N_KEYS; i++)
        if (readers[keys[i].kind](config, &keys[i], why)) return why->code;
    gpt2->sizes.tied = config->tied;
    if (gpt2->sizes.hidden % gpt2->heads == 0) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s: n_head is %lld, which does not divide the %lld features of n_embd",
                ckpt_show(config->path).text, (long long)gpt2->heads, (long long)gpt2->sizes.hidden);
}

/* ---- against tensors ---- */

/* The extent of a source in a dimension; 0: there is none. */
static int64_t extent(const ckpt_plan *plan, const char *name, int dim)
{
    for (int i = 0; i < plan->n_sources; i++)
        if (strcmp(plan->sources[i].name, name) == 0)
            return dim < plan->sources[i].n_dims ? plan->sources[i].shape[dim] : 0;
    return 0;
}

static gpt_sizes sizes_of(const ckpt_plan *plan)
{
    gpt_sizes sizes = {.vocab = extent(plan, "embedding.weight", 0),
                       .hidden = extent(plan, "embedding.weight", 1),
                       .context = extent(plan, "embedding.positions", 0),
                       .ffn = extent(plan, "block0.fc.weight", 0),
                       .tied = 1};
    for (int i = 0; i < plan->n_sources; i++) {
        const char *name = plan->sources[i].name, *dot = strchr(name, '.');
        sizes.layers += strncmp(name, "block", 5) == 0 && dot && strcmp(dot, ".qkv.weight") == 0;
        if (strcmp(name, "head.weight") == 0) sizes.tied = 0;
    }
    return sizes;
}

/* The shapes of all tensors. Sources mostly have their order. */
static int check_shapes(const ckpt_config *config, const ckpt_plan *plan, failure *why)
{
    const gpt_sizes *sizes = &config->gpt2.sizes;
    const int64_t n = gpt_tensors_count(sizes);
    int at = 0;
    for (int64_t i = 0; i < n; i++) {
        const gpt_tensor wanted = gpt_tensors_at(sizes, i);
        for (int tried = 0; tried < plan->n_sources && strcmp(plan->sources[at].name, wanted.name) != 0; tried++)
            at = (at + 1) % plan->n_sources;
        const ckpt_source *source = &plan->sources[at];
        if (strcmp(source->name, wanted.name) == 0 && source->n_dims == wanted.n_dims &&
            source->shape[0] == wanted.shape[0] && (wanted.n_dims == 1 || source->shape[1] == wanted.shape[1]))
            continue;
        const qdr_tensor shown = {.n_dims = wanted.n_dims, .shape = {wanted.shape[0], wanted.shape[1]}};
        return fail(why, EXIT_USAGE, "%s: %s does not have the shape %s that the sizes in %s give",
                    ckpt_show(plan->path).text, wanted.name, ckpt_shape(&shown).text, ckpt_show(config->path).text);
    }
    return EXIT_OK;
}

int ckpt_gpt2_check(const ckpt_config *config, const ckpt_plan *plan, failure *why)
{
    ckpt_gpt2 there = {.sizes = sizes_of(plan), .heads = config->gpt2.heads}, here = config->gpt2;
    for (int i = 0; i < N_KEYS && keys[i].kind == SIZE; i++) {
        const long long says = *size_of(&keys[i], &here), has = *size_of(&keys[i], &there);
        if (says != has)
            return fail(why, EXIT_USAGE, "%s: %s is %lld, but it is %lld by the tensors of %s",
                        ckpt_show(config->path).text, keys[i].name, says, has, ckpt_show(plan->path).text);
    }
    return check_shapes(config, plan, why);
}

/* ---- back ---- */

int ckpt_gpt2_of(const ckpt_plan *plan, const char *note, ckpt_gpt2 *gpt2, failure *why)
{
    json_t *document = NULL;
    const int is_json = note && note[strspn(note, " \t\r\n")] == '{'; /* others are no program's */
    if (is_json && fail_loading(why, qdr_json_read(note, strlen(note), "the note", &document))) return 0;
    const json_t *epsilon = json_object_get(document, NOTE_EPSILON);
    gpt2->sizes = sizes_of(plan);
    gpt2->heads = (int64_t)json_number_value(json_object_get(document, NOTE_HEADS));
    gpt2->epsilon = epsilon ? json_number_value(epsilon) : GPT_EPSILON;
    json_decref(document);
    return gpt2->heads > 0 && gpt2->sizes.layers > 0 && gpt2->sizes.hidden % gpt2->heads == 0;
}

/* As torch names it; NULL: it is no type of parameters. */
static const char *torch_type(const char *type)
{
    static const char *const types[][3] = {
        {"F32", "f32", "float32"}, {"F64", "f64", "float64"}, {"BF16", "bf16", "bfloat16"}, {"F16", "f16", "float16"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i][0], type) == 0 || strcmp(types[i][1], type) == 0) return types[i][2];
    return NULL;
}

json_t *ckpt_gpt2_document(const ckpt_gpt2 *gpt2, const char *type)
{
    json_t *root = json_pack("{s:[s], s:s, s:s, s:f, s:f, s:f, s:n, s:n, s:f, s:b}", "architectures", "GPT2LMHeadModel",
                             "model_type", GPT_NETWORK, "activation_function", "gelu_new", "attn_pdrop", 0.0,
                             "embd_pdrop", 0.0, "resid_pdrop", 0.0, "bos_token_id", "eos_token_id",
                             "layer_norm_epsilon", gpt2->epsilon, "tie_word_embeddings", gpt2->sizes.tied);
    ckpt_gpt2 sizes = *gpt2;
    int is_bad = root == NULL;
    for (int i = 0; i < N_KEYS; i++) {
        if (keys[i].kind == SIZE)
            is_bad |= json_object_set_new(root, keys[i].name, json_integer(*size_of(&keys[i], &sizes)));
        if (keys[i].kind == FIXED) is_bad |= json_object_set_new(root, keys[i].name, json_boolean(keys[i].usual));
    }
    if (torch_type(type)) is_bad |= json_object_set_new(root, "torch_dtype", json_string(torch_type(type)));
    if (!is_bad) return root;
    json_decref(root);
    return NULL;
}

const char *ckpt_gpt2_difference(const ckpt_gpt2 *gpt2, const char *type, const ckpt_config *other)
{
    ckpt_gpt2 a = *gpt2, b = other->gpt2;
    for (int i = 0; i < N_KEYS; i++)
        if (keys[i].kind == SIZE && *size_of(&keys[i], &a) != *size_of(&keys[i], &b)) return keys[i].name;
    if (a.epsilon < b.epsilon || a.epsilon > b.epsilon) return "layer_norm_epsilon";
    if (a.sizes.tied != b.sizes.tied) return "tie_word_embeddings";
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "torch_dtype" : "dtype";
        const char *loaded_as = json_string_value(json_object_get(other->document, key));
        if (loaded_as && torch_type(type) && strcmp(loaded_as, torch_type(type)) != 0) return key;
    }
    return NULL;
}
