/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint's note, a JSON object, says of its network: train writes and reads it, `quadrille ckpt convert`
 * makes it of a config.json. */
#ifndef QUADRILLE_SRC_COMMON_NETWORK_NOTE_H
#define QUADRILLE_SRC_COMMON_NETWORK_NOTE_H

#include <quadrille/network.h>
#include <quadrille/safetensors.h>

#define NOTE_NETWORK "network" /* its model_type */
#define NOTE_CONFIG "config" /* all of it: a config.json, or what qdr_network_text() has written, as an object */

/* Reads the network of a note. where: whose note it is, for sentences; it becomes the network's name if the note has
 * none. has_network: 0 if there is no note, if it is no JSON object, or has no "config". */
qdr_status network_note_read(const char *note, const char *where, qdr_network *network, int *has_network);
/* What the tensors of a GPT-2 say of it: layers, hidden, ffn, vocab, positions and tied; 1 for what they do not. */
qdr_network network_of_tensors(const qdr_safetensors *file);

#endif
