/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as files: what is written is read again, and everything else is refused. */
#include <quadrille/plan.h>
#include <unistd.h>

#include "core/codec.h"
#include "qdr_test.h"

static char folder[] = "/tmp/qdr_plan_XXXXXX", path[64];

FIXTURE(make_folder)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/plan.json", folder);
    return 0;
}

FIXTURE(remove_folder) { return rmdir(folder); }

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A network of which each number is another one. */
/* Not short in decimal. */
static double third(uint64_t *seed, int least, int most) { return (double)test_between(seed, least, most) / 3; }

static void set_rotary(qdr_rotary *rotary, uint64_t *seed)
{
    const int n_factors = (int)(test_random(seed) % QDR_ROTARY_MOST_FACTORS);
    *rotary = (qdr_rotary){.kind = (qdr_rotary_kind)(test_random(seed) % 6),
                           .interleaved = (int)(test_random(seed) % 2),
                           .exact_bounds = (int)(test_random(seed) % 2),
                           .columns = (int64_t)(test_random(seed) % 256),
                           .original = (int64_t)(test_random(seed) % 10000),
                           .theta = third(seed, 1, 100000),
                           .factor = third(seed, 1, 100),
                           .magnitude = third(seed, 0, 100),
                           .low = third(seed, 0, 9),
                           .high = third(seed, 1, 9)};
    for (int i = 0; i < n_factors; i++) rotary->short_factors[i] = rotary->long_factors[i] = 1 + i / 19.0;
}

/* Members that files have only if they are not zero. */
static void set_newer(qdr_network *n, uint64_t *seed)
{
    double *const reals[] = {&n->norm_epsilon,  &n->attention_scale,  &n->attention_cap, &n->logits_cap,
                             &n->branch_factor, &n->embedding_factor, &n->logits_factor};
    if (test_random(seed) % 4 == 0) return;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) *reals[i] = third(seed, 0, 1000);
    n->norm_place = (qdr_norm_place)(test_random(seed) % 3);
    if (n->norm_place == QDR_NORM_AROUND) n->norms_per_layer = 4;
    if (n->norm_place == QDR_NORM_BEFORE && n->parallel_residual) n->norms_per_layer = 1;
    n->head_norm = (qdr_head_norm)(test_random(seed) % 3);
    n->norm_one_plus = (int)(test_random(seed) % 2);
    n->norm_no_beta = (int)(test_random(seed) % 2);
    n->round_embedding_factor = (int)(test_random(seed) % 2);
    set_rotary(&n->rotary, seed);
    set_rotary(&n->local_rotary, seed);
    n->layer_kinds[0] = QDR_LAYER_LOCAL;
    n->window_layers = 0;
    for (int64_t i = 1; i < n->layers; i++) {
        n->layer_kinds[i] = (unsigned char)(test_random(seed) % 8);
        n->window_layers += n->layer_kinds[i] & QDR_LAYER_WINDOW;
    }
}

static qdr_network any_network(uint64_t *seed)
{
    const int64_t layers = 2 + (int64_t)(test_random(seed) % 50), heads = 3 + (int64_t)(test_random(seed) % 50);
    const unsigned switches = (unsigned)test_random(seed) % 128;
    qdr_network network = {QDR_INIT(qdr_network),
                           .name = "gpt2 \"best\"\\",
                           .architecture = "gpt2",
                           .activation = "gelu_new",
                           .layers = layers,
                           .hidden = 1 + (int64_t)(test_random(seed) % 10000),
                           .heads = heads,
                           .kv_heads = heads - 2,
                           .head_size = 1 + (int64_t)(test_random(seed) % 100),
                           .ffn = 1 + (int64_t)(test_random(seed) % 10000),
                           .vocab = 1 + (int64_t)(test_random(seed) % 100000),
                           .context = 1 + (int64_t)(test_random(seed) % 10000),
                           .positions = (int64_t)(test_random(seed) % 10000),
                           .window = (int64_t)(test_random(seed) % 100),
                           .window_layers = layers - 1,
                           .gated = switches & 1,
                           .qkv_bias = switches >> 1 & 1,
                           .out_bias = switches >> 2 & 1,
                           .mlp_bias = switches >> 3 & 1,
                           .norm = switches >> 4 & 1 ? QDR_NORM_RMS : QDR_NORM_LAYER,
                           .norms_per_layer = 2,
                           .tied = switches >> 5 & 1,
                           .parallel_residual = switches >> 6 & 1};
    set_newer(&network, seed);
    return network;
}

/* All but padding. */
static void check_same_network(const qdr_network *a, const qdr_network *b)
{
    qdr_network_difference difference = {QDR_INIT(qdr_network_difference), .key = "none"};
    assert_int_equal(qdr_network_differ(a, b, &difference), 0);
    assert_string_equal(difference.key, "none");
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->architecture, b->architecture);
    assert_string_equal(a->activation, b->activation);
    assert_true(a->layers == b->layers && a->hidden == b->hidden && a->heads == b->heads && a->ffn == b->ffn);
    assert_true(a->kv_heads == b->kv_heads && a->head_size == b->head_size && a->vocab == b->vocab);
    assert_true(a->context == b->context && a->positions == b->positions && a->window == b->window);
    assert_true(a->window_layers == b->window_layers && a->gated == b->gated && a->qkv_bias == b->qkv_bias);
    assert_true(a->out_bias == b->out_bias && a->mlp_bias == b->mlp_bias && a->norm == b->norm);
    assert_true(a->norms_per_layer == b->norms_per_layer && a->tied == b->tied);
    assert_int_equal(a->parallel_residual, b->parallel_residual);
    assert_memory_equal(&a->norm_place, &b->norm_place, sizeof *a - offsetof(qdr_network, norm_place));
}

/* A plan, and what it was made for. */
typedef struct whole_plan {
    qdr_network network;
    qdr_plan plan;
    char machine[QDR_MAX_NAME];
    double secs, memory_bytes;
} whole_plan;

static qdr_status store(const whole_plan *whole, const char *file)
{
    qdr_network network = whole->network;
    qdr_plan plan = whole->plan;
    qdr_stored_plan stored = {QDR_INIT(qdr_stored_plan), .network = &network, .plan = &plan, .secs = whole->secs,
                              .memory_bytes = whole->memory_bytes};
    memcpy(stored.machine, whole->machine, sizeof stored.machine);
    return qdr_plan_store(&stored, file);
}

static qdr_status load(const char *file, whole_plan *whole)
{
    qdr_stored_plan stored = {QDR_INIT(qdr_stored_plan), .network = &whole->network, .plan = &whole->plan};
    *whole = (whole_plan){.network = {QDR_INIT(qdr_network)}, .plan = {QDR_INIT(qdr_plan)}};
    const qdr_status status = qdr_plan_load(file, &stored);
    memcpy(whole->machine, stored.machine, sizeof whole->machine);
    whole->secs = stored.secs;
    whole->memory_bytes = stored.memory_bytes;
    return status;
}

static whole_plan any_plan(uint64_t *seed)
{
    static const char *const orders[] = {"xyzd", "dzyx", "zxdy"};
    whole_plan stored = {
        .network = any_network(seed), .machine = "dgx-a100", .secs = 1 / 3.0, .memory_bytes = 123456789012.0};
    qdr_plan *plan = &stored.plan;
    static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    *plan = (qdr_plan){QDR_INIT(qdr_plan), .dtype = types[test_random(seed) % 4]};
    plan->x = 1 + (int)(test_random(seed) % 9);
    plan->y = 1 + (int)(test_random(seed) % 9);
    plan->z = 1 + (int)(test_random(seed) % 9);
    plan->d = 1 + (int)(test_random(seed) % 100000);
    strcpy(plan->order, orders[test_random(seed) % 3]);
    plan->layout = (qdr_layout)(test_random(seed) % 2);
    plan->recompute = (qdr_recompute)(test_random(seed) % 5);
    plan->batch = 1 + (int64_t)(test_random(seed) % 100000);
    plan->micro_batch = (int64_t)(test_random(seed) % 100);
    plan->sequence = (int64_t)(test_random(seed) % 100000);
    plan->gradient_parts = (int)(test_random(seed) % 64);
    plan->optimizer_parts = (int)(test_random(seed) % 64);
    plan->overlap = (int)(test_random(seed) % 8);
    plan->pipeline = (int)(test_random(seed) % 4);
    plan->interleave = (int)(test_random(seed) % 3);
    plan->threads = (int64_t)(test_random(seed) % 4);
    plan->context_parts = (int)(test_random(seed) % 3);
    static const char *const codecs[] = {"none", "hybrid", "aggressive,least=1000,inside", "none,x.activation=zfp:9",
                                         "safe,d.gradient=int4/64+hadamard+feedback+stochastic,xy=raw"};
    CHECK_OK(qdr_codecs_parse(codecs[test_random(seed) % 5], &plan->codecs));
    return stored;
}

static void check_same(const qdr_plan *a, const qdr_plan *b)
{
    assert_true(a->x == b->x && a->y == b->y && a->z == b->z);
    assert_true(a->d == b->d && a->layout == b->layout && a->recompute == b->recompute);
    assert_true(a->dtype == b->dtype && a->batch == b->batch && a->micro_batch == b->micro_batch);
    assert_true(a->sequence == b->sequence && a->overlap == b->overlap);
    assert_true(a->gradient_parts == b->gradient_parts && a->optimizer_parts == b->optimizer_parts);
    assert_true(a->pipeline == b->pipeline && a->interleave == b->interleave && a->threads == b->threads);
    assert_true(a->context_parts == b->context_parts);
    assert_string_equal(a->order, b->order);
    assert_true(qdri_codecs_are_same(&a->codecs, &b->codecs));
}

TEST(same_again)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < 200; i++) {
        const whole_plan stored = any_plan(&seed);
        whole_plan loaded;
        CHECK_OK(store(&stored, path)); /* in place of the one before */
        CHECK_OK(load(path, &loaded));
        check_same_network(&loaded.network, &stored.network);
        assert_string_equal(loaded.machine, stored.machine);
        assert_true(loaded.secs == stored.secs && loaded.memory_bytes == stored.memory_bytes);
        check_same(&loaded.plan, &stored.plan);
    }
    assert_int_equal(remove(path), 0);
}

/* The keys of sizes, in two parts with the layers between them. */
#define SIZES_BEFORE "\"sizes\": {\"architecture\": \"gpt2\", \"activation\": \"gelu_new\""
#define SIZES_AFTER                                                                                                    \
    ", \"hidden\": 8, \"heads\": 2, \"kv_heads\": 2, \"head_size\": 4, \"ffn\": 32, \"vocab\": 256, \"context\": 16"   \
    ", \"positions\": 16, \"window\": 0, \"window_layers\": 0, \"gated\": false, \"qkv_bias\": true"                   \
    ", \"out_bias\": true, \"mlp_bias\": true, \"norm\": \"layer\", \"norms_per_layer\": 2, \"tied\": true"            \
    ", \"parallel_residual\": false}"
#define SIZES SIZES_BEFORE ", \"layers\": 2" SIZES_AFTER
#define PLAN "{\"quadrille_plan\": 3, "
#define HEAD PLAN SIZES ", \"grid\": [1, 2, 3, 4], \"batch\": 24"

TEST(least_file)
{
    whole_plan loaded;
    write_text(HEAD "}");
    CHECK_OK(load(path, &loaded));
    assert_string_equal(loaded.plan.order, "xyzd");
    assert_int_equal(loaded.plan.dtype, QDR_BF16);
    assert_int_equal(loaded.plan.d, 4);
    assert_int_equal(loaded.plan.batch, 24);
    assert_int_equal(loaded.plan.micro_batch, 0);
    assert_int_equal(remove(path), 0);
}

static const struct {
    const char *text, *words;
} bad[] = {
    {"", "plan.json"},
    {"[1]", "plan.json"},
    {"{}", "'quadrille_plan'"},
    {"{\"quadrille_plan\": 4}", "'quadrille_plan'"},
    {"{\"quadrille_plan\": 1, \"network\": \"gpt2\", \"grid\": [1, 2, 3, 4], \"batch\": 1}",
     "does not have all that describes"},
    {PLAN "\"grid\": [1, 2, 3, 4], \"batch\": 24}", "'sizes'"},
    {PLAN SIZES_BEFORE SIZES_AFTER "}", "'sizes.layers' is missing"},
    {PLAN SIZES_BEFORE ", \"layers\": 0" SIZES_AFTER "}", "layers 0"},
    {PLAN SIZES_BEFORE ", \"layers\": 1.5" SIZES_AFTER "}", "'sizes.layers'"},
    {PLAN SIZES_BEFORE ", \"layers\": 2, \"experts\": 8" SIZES_AFTER "}", "'sizes.experts'"},
    {PLAN SIZES_BEFORE ", \"layers\": 2, \"layer_kinds\": \"5\"" SIZES_AFTER "}", "one digit for each layer"},
    {PLAN SIZES_BEFORE ", \"layers\": null" SIZES_AFTER "}", "'sizes.layers' is null; give it a value"},
    {PLAN SIZES_BEFORE ", \"layers\": 2, \"norm_epsilon\": null" SIZES_AFTER "}", "'sizes.norm_epsilon' is null"},
    {PLAN "\"sizes\": {\"architecture\": \"nope\", \"activation\": \"relu\", \"layers\": 2" SIZES_AFTER "}",
     "plan.json: key 'sizes.architecture' is \"nope\"; one of cohere2, gemma, "},
    {PLAN SIZES ", \"experts\": 8}", "'experts'"},
    {PLAN SIZES ", \"grid\": [1, null, 3, 4]}", "'grid[1]' is null"},
    {HEAD ", \"batch\": 24}", "duplicate object key"},
    {HEAD ", \"overlap\": 1024}", "'overlap'"},
    {PLAN SIZES "}", "'grid'"},
    {PLAN SIZES ", \"grid\": [1, 2, 3], \"batch\": 1}", "[x, y, z, d]"},
    {PLAN SIZES ", \"grid\": [1, 2, 0, 4], \"batch\": 1}", "'grid[2]'"},
    {PLAN SIZES ", \"grid\": [65536, 65536, 65536, 65536], \"batch\": 1}", "2147483647"},
    {PLAN SIZES ", \"grid\": \"1x2x3x4\", \"batch\": 1}", "'grid'"},
    {PLAN SIZES ", \"grid\": [1, 2, 3, 4]}", "'batch'"},
    {HEAD ", \"ranks\": 25}", "25, but the grid has 24"},
    {HEAD ", \"order\": \"xyz\"}", "permutation"},
    {HEAD ", \"order\": \"xyzz\"}", "permutation"},
    {HEAD ", \"layout\": \"both\"}", "'layout'"},
    {HEAD ",\n \"recompute\": 1}", "key 'recompute'"},
    {HEAD ", \"dtype\": \"i32\"}", "'dtype'"},
    {HEAD ", \"micro_batch\": -1}", "'micro_batch'"},
    {HEAD ", \"gradient_parts\": 4294967296}", "'gradient_parts'"},
    {HEAD ", \"axis_bytes_ratio\": [1, 1, 1, 1]}", "plans have codecs instead"},
    {HEAD ", \"codecs\": \"hybird\"}", "nearest: hybrid"},
    {HEAD ", \"predicted_secs\": -1}", "'predicted_secs'"},
    {HEAD ", \"network\": 7}", "'network'"},
};

TEST(bad_files)
{
    static const whole_plan zero = {.network = {QDR_INIT(qdr_network)}, .plan = {QDR_INIT(qdr_plan)}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        whole_plan loaded;
        write_text(bad[i].text);
        CHECK_FAILS(load(path, &loaded), QDR_ERR_ARGUMENT, bad[i].words);
        assert_memory_equal(&loaded, &zero, sizeof zero);
    }
    assert_int_equal(remove(path), 0);
}

TEST(others_stay)
{
    uint64_t seed = 1;
    char line[64];
    const whole_plan stored = any_plan(&seed);
    static const char *const texts[] = {"my notes\n", "{\"grid\": 1}\n", "[]\n"};
    for (int i = 0; i < 3; i++) {
        write_text(texts[i]);
        CHECK_FAILS(store(&stored, path), QDR_ERR_ARGUMENT, "is not a plan file");
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_non_null(fgets(line, sizeof line, file));
        assert_string_equal(line, texts[i]);
        fclose(file);
    }
    assert_int_equal(remove(path), 0);
}

TEST(bad_calls)
{
    uint64_t seed = 1;
    whole_plan stored = any_plan(&seed), loaded;
    char missing[80];
    snprintf(missing, sizeof missing, "%s/none/plan.json", folder);
    CHECK_FAILS(store(&stored, missing), QDR_ERR_ARGUMENT, "none/plan.json");
    CHECK_FAILS(load(missing, &loaded), QDR_ERR_IO, "none/plan.json");
    CHECK_FAILS(store(&stored, folder), QDR_ERR_ARGUMENT, folder);
    CHECK_FAILS(store(&stored, "-"), QDR_ERR_ARGUMENT, "standard output");
    CHECK_FAILS(store(&stored, ""), QDR_ERR_ARGUMENT, "is empty");
    qdr_stored_plan given = {QDR_INIT(qdr_stored_plan), .network = &stored.network, .plan = &stored.plan};
    CHECK_FAILS(qdr_plan_store(&given, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_plan_store(NULL, path), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_plan_load(NULL, &given), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_plan_load(path, NULL), QDR_ERR_ARGUMENT, "pointer is NULL");
    stored = any_plan(&seed);
    stored.network.layers = 0;
    CHECK_FAILS(store(&stored, path), QDR_ERR_SHAPE, "layers 0");
    stored = any_plan(&seed);
    strcpy(stored.network.architecture, "nope");
    CHECK_FAILS(store(&stored, path), QDR_ERR_ARGUMENT, "architecture is 'nope'; one of cohere2, ");
    stored.plan.x = 0;
    CHECK_FAILS(store(&stored, path), QDR_ERR_ARGUMENT, "grid");
    assert_int_not_equal(access(path, F_OK), 0);
}

/* Each member of a network makes another one of it. */
TEST(networks_differ)
{
    uint64_t seed = test_seed();
    const qdr_network usual = any_network(&seed);
#define DIFFERS(change, name)                                                                                          \
    do {                                                                                                               \
        qdr_network n = usual;                                                                                         \
        qdr_network_difference difference = {QDR_INIT(qdr_network_difference)};                                        \
        change;                                                                                                        \
        assert_int_equal(qdr_network_differ(&usual, &n, &difference), 1);                                              \
        assert_string_equal(difference.key, name);                                                                     \
        assert_string_not_equal(difference.first, difference.second);                                                  \
    } while (0)
    DIFFERS(strcpy(n.architecture, "llama"), "architecture");
    DIFFERS(strcpy(n.activation, "gelu"), "activation");
    DIFFERS(n.layers++, "layers");
    DIFFERS(n.hidden++, "hidden");
    DIFFERS(n.heads++, "heads");
    DIFFERS(n.kv_heads++, "kv_heads");
    DIFFERS(n.head_size++, "head_size");
    DIFFERS(n.ffn++, "ffn");
    DIFFERS(n.vocab++, "vocab");
    DIFFERS(n.context++, "context");
    DIFFERS(n.positions++, "positions");
    DIFFERS(n.window++, "window");
    DIFFERS(n.window_layers++, "window_layers");
    DIFFERS(n.gated ^= 1, "gated");
    DIFFERS(n.qkv_bias ^= 1, "qkv_bias");
    DIFFERS(n.out_bias ^= 1, "out_bias");
    DIFFERS(n.mlp_bias ^= 1, "mlp_bias");
    DIFFERS(n.norm = n.norm == QDR_NORM_RMS ? QDR_NORM_LAYER : QDR_NORM_RMS, "norm");
    DIFFERS(n.norms_per_layer++, "norms_per_layer");
    DIFFERS(n.tied ^= 1, "tied");
    DIFFERS(n.parallel_residual ^= 1, "parallel_residual");
    qdr_network other = usual;
    strcpy(other.name, "another");
    strcpy(other.activation, "gelu_pytorch_tanh");
    assert_int_equal(qdr_network_differ(&usual, &other, NULL), 0);
    assert_int_equal(qdr_network_differ(&usual, NULL, NULL), 1);
}

int main(void) { return run_all_tests(make_folder, remove_folder); }
