/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as the config.json of a network: refused with one printable message that names the file, or accepted;
 * the parameters of an accepted network can be counted and listed, and it can be written. */
#include "quadrille/network.h"

#include "core/status.h"
#include "fuzz.h"

static void check_sentence(const char *sentence)
{
    require(strstr(sentence, "fuzz") != NULL);
    check_printable(sentence);
}

/* Frequencies are positive, or were found to be too many. */
static void check_layer(const qdr_network *network, int64_t number)
{
    enum { MOST = 4096 };
    double frequencies[MOST], magnitude;
    qdr_network_layer layer = {QDR_INIT(qdr_network_layer)};
    require(qdr_network_describe_layer(network, number, &layer) == QDR_OK);
    require(layer.window >= 0 && layer.rotary_columns >= 0 && layer.rotary_columns <= network->head_size + 1);
    if (layer.rotary_columns == 0 || layer.rotary_columns > 2 * MOST) return;
    require(qdr_network_rotary(network, number, network->context, frequencies, &magnitude) == QDR_OK);
    require(magnitude > 0);
    for (int64_t i = 0; i < layer.rotary_columns / 2; i++) require(frequencies[i] >= 0);
}

static void add_elems(const qdr_network_parameter *parameter, void *user)
{
    *(int64_t *)user += parameter->n_rows * parameter->n_cols;
}

/* What is listed is what is counted; what is written is what is read. */
static void check_lists(const qdr_network *network, int64_t total)
{
    static char text[65536];
    int64_t n = 0;
    qdr_network again = {QDR_INIT(qdr_network)};
    if (network->layers <= 8 && qdr_network_parameters(network, add_elems, &n) == QDR_OK) require(n == total);
    const size_t bytes = qdr_network_text(network, text, sizeof text);
    require(bytes > 0 && bytes < sizeof text);
    require(qdr_network_parse(text, bytes, "fuzz", &again) == QDR_OK);
    require(!qdr_network_differ(network, &again, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    qdr_network_flops flops = {QDR_INIT(qdr_network_flops)};
    qdri_set_last_error("");
    if (qdr_network_parse((const char *)bytes, n_bytes, "fuzz", &network) != QDR_OK) {
        check_sentence(qdr_last_error());
        require(network.layers == 0);
        return 0;
    }
    require(qdr_network_params(&network, &counts) == QDR_OK);
    require(counts.total > 0 && counts.layer > 0);
    require(qdr_network_flops_per_token(&network, network.context, &flops) == QDR_OK);
    require(flops.linear > 0 && flops.head > 0);
    require(flops.attention_causal > 0 && flops.attention_causal <= flops.attention);
    check_lists(&network, counts.total);
    check_layer(&network, 0);
    check_layer(&network, network.layers - 1);
    return 0;
}
