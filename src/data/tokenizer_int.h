/*
 * What the files of the tokenizer share: the parts of a tokenizer.json as they were read
 * (tokenizer_load.c), in the order in which a text goes through them: added tokens (tokenizer.c),
 * normalizers (tokenizer_normalize.c), pre-tokenizers (tokenizer_split.c), the model
 * (tokenizer_model.c); and decoders (tokenizer_decode.c).
 */
#ifndef GD_DATA_TOKENIZER_INT_H
#define GD_DATA_TOKENIZER_INT_H

#include "base/mem.h"
#include "data/tokenizer.h"
#include "data/tokenizer_regex.h"
#include "data/unicode.h"

enum {
  GD_TOKENIZER_STEPS = 24,         /* of a Sequence, with those in it */
  GD_TOKENIZER_MOST_IDS = 1 << 24, /* ids are below this */
  GD_TOKENIZER_MOST_TEXT = INT32_MAX
};

/* Bytes with their length; in the tokenizer's arena. */
struct gd_text {
  const char *text;
  size_t length;
};

enum gd_step_kind {
  /* normalizers */
  GD_STEP_NFC,
  GD_STEP_NFD,
  GD_STEP_NFKC,
  GD_STEP_NFKD,
  GD_STEP_LOWERCASE,
  GD_STEP_STRIP_ACCENTS,
  GD_STEP_BERT_NORMALIZER,
  GD_STEP_PREPEND,
  GD_STEP_REPLACE, /* a decoder too */
  GD_STEP_STRIP,
  /* pre-tokenizers */
  GD_STEP_BYTE_LEVEL, /* a decoder too */
  GD_STEP_SPLIT,
  GD_STEP_METASPACE, /* a decoder too */
  GD_STEP_BERT,
  GD_STEP_WHITESPACE,
  GD_STEP_WHITESPACE_SPLIT,
  GD_STEP_DIGITS,
  GD_STEP_PUNCTUATION,
  /* decoders */
  GD_STEP_WORDPIECE,
  GD_STEP_BYTE_FALLBACK,
  GD_STEP_FUSE,
  GD_STEP_STRIP_DECODER,
  GD_STEP_BPE_DECODER,
};

enum gd_split_behavior {
  GD_SPLIT_REMOVED,
  GD_SPLIT_ISOLATED,
  GD_SPLIT_MERGED_WITH_PREVIOUS,
  GD_SPLIT_MERGED_WITH_NEXT,
  GD_SPLIT_CONTIGUOUS,
};

enum gd_prepend_scheme { GD_PREPEND_ALWAYS, GD_PREPEND_FIRST, GD_PREPEND_NEVER };

/* One normalizer, pre-tokenizer or decoder; which fields count depends on the kind. */
struct gd_step {
  enum gd_step_kind kind;
  struct gd_regex *regex; /* Replace, Split; owned */
  struct gd_text text;    /* Prepend, Metaspace's character, prefix, suffix */
  struct gd_text content; /* Replace: what takes the place */
  enum gd_split_behavior behavior;
  enum gd_prepend_scheme scheme;
  int64_t start, stop; /* Strip of decoders: how many at most */
  bool invert, split;  /* Split; Metaspace */
  bool add_prefix_space, use_regex;
  bool left, right;                    /* Strip */
  bool clean, chinese, accents, lower; /* BertNormalizer */
  bool individual;                     /* Digits */
  bool cleanup;                        /* WordPiece */
};

struct gd_steps {
  struct gd_step items[GD_TOKENIZER_STEPS];
  int count;
};

/* Texts to ids. */
struct gd_token_map {
  struct gd_token_entry {
    struct gd_text text;
    int32_t id;
  } * entries;
  uint32_t *slots; /* index of an entry + 1; 0: free */
  uint32_t n_entries, entries_room, n_slots;
};
bool gd_token_map_add(struct gd_token_map *map, struct gd_text text, int32_t id);
int32_t gd_token_map_find(const struct gd_token_map *map, const char *text, size_t length);
void gd_token_map_deinit(struct gd_token_map *map);

struct gd_merge {
  int32_t left, right; /* left -1: free */
  uint32_t rank;
  int32_t whole;
};

struct gd_added_token {
  struct gd_text content, pattern; /* pattern: normalized where that is asked for */
  int32_t id;
  bool special, single_word, lstrip, rstrip, normalized;
};

/* Added tokens by their bytes; node 0 is the root. */
struct gd_token_trie {
  struct gd_trie_node {
    uint32_t child, sibling; /* 0: none */
    int32_t token;           /* index of the added token that ends here; -1 */
    unsigned char byte;
  } * nodes;
  uint32_t count, capacity;
  bool first[256];
};

struct gd_tokenizer {
  struct gd_arena arena;
  struct gd_unicode unicode;
  char label[256]; /* for messages */
  struct gd_steps normalizers, pre_tokenizers, decoders;
  struct gd_added_token *added;
  uint32_t n_added, added_room;
  struct gd_token_trie raw, normalized; /* added tokens, before and after normalizers */
  struct gd_text *tokens;               /* text of ids; NULL text: none has it */
  bool *special;                        /* of ids */
  int64_t n_tokens;
  struct gd_token_ids before, after; /* what the post-processor puts around a text */
  struct gd_regex *byte_level;       /* GPT-2's pattern, where a step uses it */

  /* the model */
  struct gd_token_map vocabulary;
  size_t longest;          /* bytes of a token in it */
  struct gd_merge *merges; /* open addressing by left and right */
  uint32_t n_merge_slots;
  int32_t unknown;                /* id of unk_token; -1: none */
  struct gd_text prefix, suffix;  /* continuing_subword_prefix, end_of_word_suffix */
  int64_t most_characters;        /* of a word, WordPiece */
  int32_t byte_ids[256];          /* byte fallback: <0x41>; byte level: of single bytes; or -1 */
  struct gd_token_map byte_words; /* then: vocabulary by bytes, for ignore_merges */
  bool has_decoder;
  bool wordpiece;
  bool unknown_named; /* the file names one, whether or not the vocabulary has it */
  bool fuse_unknown, byte_fallback, ignore_merges;
  bool bytes;        /* words are bytes, and tokens stand for bytes (ByteLevel) */
  bool cut_at_space; /* no merge goes over the edge from a character to U+2581 */
};

struct gd_word_cache {
  struct gd_word_slot {
    uint64_t hash;
    uint32_t text, ids;     /* where they begin */
    uint16_t length, count; /* length 0: free */
  } * slots;
  char *texts;
  int32_t *ids;
  uint32_t n_texts, n_ids, used;
};

struct gd_heap_entry {
  uint64_t key; /* rank << 32 | place */
  int32_t whole;
};

struct gd_tokenizer_work {
  struct gd_regex_stack stack;
  struct gd_strbuf clean, normal[2];
  size_t most;    /* bytes that the normalizers may make of the text */
  bool cut_start; /* the normalizers took the first characters away */
  struct gd_strbuf steps[GD_TOKENIZER_STEPS + 1]; /* text that a pre-tokenizer changed */
  struct gd_strbuf word;
  int32_t *symbols, *next, *previous; /* of a word */
  size_t symbols_room, links_room;
  struct gd_heap_entry *heap;
  size_t n_heap, heap_room;
  struct gd_word_cache cache;
  struct gd_token_ids *out;
  struct gd_error *err;
};

bool gd_token_ids_push(struct gd_token_ids *ids, const int32_t *from, int64_t count);

/* The text in the form that the normalizers give it: itself, or in a buffer of work. */
enum gd_status gd_tokenizer_normalize(const struct gd_tokenizer *tokenizer,
                                      struct gd_tokenizer_work *work, const char *text,
                                      size_t length, struct gd_text *out) GD_MUST_USE;
/* What Replace rules may make of a text in all, however many follow each other: no tokenizer that
   was trained comes near. */
enum { GD_TOKENIZER_GROWTH = 64, GD_TOKENIZER_GROWTH_BYTES = 4096 };
static inline size_t gd_tokenizer_most(size_t length) {
  return GD_TOKENIZER_GROWTH * length + GD_TOKENIZER_GROWTH_BYTES;
}
/* Appends text with what the pattern matches replaced. GD_BAD_INPUT: out is longer than `most` by
   then. */
enum gd_status gd_tokenizer_replace(const struct gd_step *step, struct gd_regex_stack *stack,
                                    const char *text, size_t length, size_t most,
                                    struct gd_strbuf *out, struct gd_error *err) GD_MUST_USE;
/* Splits text by the pre-tokenizers and hands the words to the model. first: it is the start of the
   whole text. */
enum gd_status gd_tokenizer_split(const struct gd_tokenizer *tokenizer,
                                  struct gd_tokenizer_work *work, const char *text, size_t length,
                                  bool first) GD_MUST_USE;
/* Appends the ids of a word. */
enum gd_status gd_tokenizer_word(const struct gd_tokenizer *tokenizer,
                                 struct gd_tokenizer_work *work, const char *text,
                                 size_t length) GD_MUST_USE;
/* Tables of the model that follow from vocabulary and merges: gd_tokenizer_word reads them. */
enum gd_status gd_tokenizer_finish_model(struct gd_tokenizer *tokenizer,
                                         struct gd_error *err) GD_MUST_USE;
bool gd_tokenizer_add_merge(struct gd_tokenizer *tokenizer, int32_t left, int32_t right,
                            uint32_t rank, int32_t whole);

/* GPT-2's characters for bytes: every byte has one that is printed. */
uint32_t gd_byte_character(unsigned char byte);
/* The byte of such a character; -1: it is none. */
int gd_character_byte(uint32_t point);

#endif
