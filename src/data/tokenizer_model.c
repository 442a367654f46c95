/*
 * The models: words to token ids by byte-pair merges or by the longest pieces of a vocabulary.
 * tokenizer_split.c hands words over, tokenizer_load.c fills the tables. Short words are merged by
 * looking through them, long ones by a heap, so that no text takes more than n log n; words that
 * were seen are remembered, up to a bound.
 */
#include <string.h>

#include "data/tokenizer_int.h"

enum {
  SHORT_WORD = 40,               /* symbols of a word that is merged without a heap */
  CACHED_BYTES = 48,             /* longest word that is remembered */
  CACHE_SLOTS = 1 << 16,         /* a power of two */
  CACHE_USED = CACHE_SLOTS / 2,  /* then all are forgotten */
  CACHE_TEXTS = CACHE_USED * 16, /* bytes */
  CACHE_IDS = CACHE_USED * 8
};

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ b) * UINT64_C(0x9e3779b97f4a7c15);
  return x ^ x >> 29;
}

static uint64_t hash_bytes(const char *text, size_t length) {
  uint64_t hash = length * UINT64_C(0xff51afd7ed558ccd), piece;
  for (; length >= 8; text += 8, length -= 8) {
    memcpy(&piece, text, 8);
    hash = mix(hash, piece);
  }
  piece = 0;
  memcpy(&piece, text, length);
  hash = mix(hash, piece);
  return hash ^ hash >> 32;
}

/* --- the vocabulary ------------------------------------------------------------------------ */

static uint32_t *find_slot(const struct gd_token_map *map, const char *text, size_t length) {
  uint32_t at = (uint32_t)hash_bytes(text, length) & (map->n_slots - 1);
  for (; map->slots[at]; at = (at + 1) & (map->n_slots - 1)) {
    const struct gd_text *known = &map->entries[map->slots[at] - 1].text;
    if (known->length == length && memcmp(known->text, text, length) == 0)
      break;
  }
  return &map->slots[at];
}

static bool grow_slots(struct gd_token_map *map) {
  uint32_t count = map->n_slots ? map->n_slots * 2 : 64;
  uint32_t *slots = gd_mem_alloc(count, sizeof *slots);
  if (!slots)
    return false;
  gd_mem_free(map->slots);
  map->slots = slots;
  map->n_slots = count;
  for (uint32_t i = 0; i < map->n_entries; i++)
    *find_slot(map, map->entries[i].text.text, map->entries[i].text.length) = i + 1;
  return true;
}

bool gd_token_map_add(struct gd_token_map *map, struct gd_text text, int32_t id) {
  if ((map->n_entries + 1) * 2 > map->n_slots && !grow_slots(map))
    return false;
  uint32_t *slot = find_slot(map, text.text, text.length);
  if (*slot) {
    map->entries[*slot - 1].id = id;
    return true;
  }
  if (!gd_vec_reserve((void **)&map->entries, &map->entries_room, map->n_entries + 1,
                      sizeof *map->entries))
    return false;
  map->entries[map->n_entries] = (struct gd_token_entry){text, id};
  *slot = ++map->n_entries;
  return true;
}

int32_t gd_token_map_find(const struct gd_token_map *map, const char *text, size_t length) {
  if (map->n_slots == 0)
    return -1;
  uint32_t slot = *find_slot(map, text, length);
  return slot ? map->entries[slot - 1].id : -1;
}

void gd_token_map_deinit(struct gd_token_map *map) {
  gd_mem_free(map->entries);
  gd_mem_free(map->slots);
  *map = (struct gd_token_map){0};
}

/* --- merges -------------------------------------------------------------------------------- */

static struct gd_merge *merge_slot(const struct gd_tokenizer *tokenizer, int32_t left,
                                   int32_t right) {
  uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  uint32_t at = (uint32_t)(mix(pair, 0) >> 20) & (tokenizer->n_merge_slots - 1);
  while (tokenizer->merges[at].left >= 0 &&
         (tokenizer->merges[at].left != left || tokenizer->merges[at].right != right))
    at = (at + 1) & (tokenizer->n_merge_slots - 1);
  return &tokenizer->merges[at];
}

/* Room for all of them was made by the loader. A pair that comes twice has its last rank. */
bool gd_tokenizer_add_merge(struct gd_tokenizer *tokenizer, int32_t left, int32_t right,
                            uint32_t rank, int32_t whole) {
  *merge_slot(tokenizer, left, right) = (struct gd_merge){left, right, rank, whole};
  return true;
}

static inline const struct gd_merge *find_merge(const struct gd_tokenizer *tokenizer, int32_t left,
                                                int32_t right) {
  const struct gd_merge *found = merge_slot(tokenizer, left, right);
  return found->left >= 0 ? found : NULL;
}

/* --- room ---------------------------------------------------------------------------------- */

bool gd_token_ids_push(struct gd_token_ids *ids, const int32_t *from, int64_t count) {
  if (count > ids->capacity - ids->count) {
    int64_t capacity = ids->capacity ? ids->capacity : 256;
    while (capacity - ids->count < count)
      capacity *= 2;
    int32_t *grown =
        gd_mem_grow(ids->ids, (size_t)ids->capacity, (size_t)capacity, sizeof *ids->ids);
    if (!grown)
      return false;
    ids->ids = grown;
    ids->capacity = capacity;
  }
  if (count > 0)
    memcpy(ids->ids + ids->count, from, (size_t)count * sizeof *from);
  ids->count += count;
  return true;
}

void gd_token_ids_deinit(struct gd_token_ids *ids) {
  gd_mem_free(ids->ids);
  *ids = (struct gd_token_ids){0};
}

static enum gd_status nomem(struct gd_tokenizer_work *work) {
  return gd_nomem(work->err, "while tokenizing");
}

static enum gd_status put(struct gd_tokenizer_work *work, const int32_t *ids, size_t count) {
  return gd_token_ids_push(work->out, ids, (int64_t)count) ? GD_OK : nomem(work);
}

static bool reserve(int32_t **items, size_t *room, size_t count) {
  if (count <= *room)
    return true;
  size_t more = *room * 2 > count ? *room * 2 : count + 64;
  int32_t *grown = gd_mem_grow(*items, *room, more, sizeof *grown);
  if (!grown)
    return false;
  *items = grown;
  *room = more;
  return true;
}

/* --- words that were seen ------------------------------------------------------------------ */

static bool cache_open(struct gd_word_cache *cache) {
  if (!cache->slots)
    cache->slots = gd_mem_alloc(CACHE_SLOTS, sizeof *cache->slots);
  if (!cache->texts)
    cache->texts = gd_mem_alloc(CACHE_TEXTS, 1);
  if (!cache->ids)
    cache->ids = gd_mem_alloc(CACHE_IDS, sizeof *cache->ids);
  return cache->slots && cache->texts && cache->ids;
}

static struct gd_word_slot *cache_slot(const struct gd_word_cache *cache, const char *text,
                                       size_t length, uint64_t hash) {
  size_t at = hash & (CACHE_SLOTS - 1);
  while (cache->slots[at].length &&
         (cache->slots[at].hash != hash || cache->slots[at].length != length ||
          memcmp(cache->texts + cache->slots[at].text, text, length) != 0))
    at = (at + 1) & (CACHE_SLOTS - 1);
  return &cache->slots[at];
}

static void cache_add(struct gd_word_cache *cache, const char *text, size_t length, uint64_t hash,
                      const int32_t *ids, size_t count) {
  if (cache->used >= CACHE_USED || cache->n_texts + length > CACHE_TEXTS ||
      cache->n_ids + count > CACHE_IDS) {
    memset(cache->slots, 0, CACHE_SLOTS * sizeof *cache->slots);
    cache->used = cache->n_texts = cache->n_ids = 0;
  }
  struct gd_word_slot *slot = cache_slot(cache, text, length, hash);
  *slot =
      (struct gd_word_slot){hash, cache->n_texts, cache->n_ids, (uint16_t)length, (uint16_t)count};
  memcpy(cache->texts + cache->n_texts, text, length);
  memcpy(cache->ids + cache->n_ids, ids, count * sizeof *ids);
  cache->n_texts += (uint32_t)length;
  cache->n_ids += (uint32_t)count;
  cache->used++;
}

/* --- BPE ----------------------------------------------------------------------------------- */

/* Merges the pair of the lowest rank, the first of equal ones, until there is none. */
static size_t merge_short(const struct gd_tokenizer *tokenizer, int32_t *symbols, size_t count) {
  uint32_t ranks[SHORT_WORD];
  int32_t wholes[SHORT_WORD];
  for (size_t i = 0; i + 1 < count; i++) {
    const struct gd_merge *merge = find_merge(tokenizer, symbols[i], symbols[i + 1]);
    ranks[i] = merge ? merge->rank : UINT32_MAX;
    wholes[i] = merge ? merge->whole : -1;
  }
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; i++)
      if (ranks[i] < ranks[best])
        best = i;
    if (ranks[best] == UINT32_MAX)
      break;
    symbols[best] = wholes[best];
    count--;
    for (size_t i = best + 1; i < count; i++)
      symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < count; i++) {
      ranks[i] = ranks[i + 1];
      wholes[i] = wholes[i + 1];
    }
    for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < count; i++) {
      const struct gd_merge *merge = find_merge(tokenizer, symbols[i], symbols[i + 1]);
      ranks[i] = merge ? merge->rank : UINT32_MAX;
      wholes[i] = merge ? merge->whole : -1;
    }
  }
  return count;
}

static bool heap_push(struct gd_tokenizer_work *work, const struct gd_merge *merge, size_t place) {
  if (!merge)
    return true;
  if (work->n_heap == work->heap_room) {
    size_t room = work->heap_room ? work->heap_room * 2 : 1024;
    struct gd_heap_entry *grown = gd_mem_grow(work->heap, work->heap_room, room, sizeof *grown);
    if (!grown)
      return false;
    work->heap = grown;
    work->heap_room = room;
  }
  struct gd_heap_entry *heap = work->heap,
                       entry = {(uint64_t)merge->rank << 32 | place, merge->whole};
  size_t at = work->n_heap++;
  for (; at > 0 && heap[(at - 1) / 4].key > entry.key; at = (at - 1) / 4)
    heap[at] = heap[(at - 1) / 4];
  heap[at] = entry;
  return true;
}

static struct gd_heap_entry heap_pop(struct gd_tokenizer_work *work) {
  struct gd_heap_entry *heap = work->heap, top = heap[0], last = heap[--work->n_heap];
  size_t at = 0;
  for (;;) {
    size_t child = at * 4 + 1, least = child;
    if (child >= work->n_heap)
      break;
    for (size_t i = child + 1; i < child + 4 && i < work->n_heap; i++)
      if (heap[i].key < heap[least].key)
        least = i;
    if (heap[least].key >= last.key)
      break;
    heap[at] = heap[least];
    at = least;
  }
  heap[at] = last;
  return top;
}

/* Symbols as a list, pairs in a heap; entries of pairs that are gone are passed over. */
static bool merge_long(const struct gd_tokenizer *tokenizer, struct gd_tokenizer_work *work,
                       size_t *count) {
  size_t kept = 0, links = work->links_room;
  if (!reserve(&work->next, &links, *count))
    return false;
  links = work->links_room;
  if (!reserve(&work->previous, &links, *count))
    return false;
  work->links_room = links;
  int32_t *symbols = work->symbols, *next = work->next, *previous = work->previous;
  work->n_heap = 0;
  for (size_t i = 0; i < *count; i++) {
    next[i] = i + 1 < *count ? (int32_t)i + 1 : -1;
    previous[i] = (int32_t)i - 1;
    if (i + 1 < *count && !heap_push(work, find_merge(tokenizer, symbols[i], symbols[i + 1]), i))
      return false;
  }
  while (work->n_heap > 0) {
    struct gd_heap_entry top = heap_pop(work);
    size_t place = (size_t)(top.key & UINT32_MAX);
    if (symbols[place] < 0 || next[place] < 0)
      continue;
    int32_t right = next[place];
    const struct gd_merge *merge = find_merge(tokenizer, symbols[place], symbols[right]);
    if (!merge || merge->whole != top.whole)
      continue;
    symbols[place] = top.whole;
    symbols[right] = -1;
    next[place] = next[right];
    if (next[right] >= 0)
      previous[next[right]] = (int32_t)place;
    if (previous[place] >= 0 &&
        !heap_push(work, find_merge(tokenizer, symbols[previous[place]], symbols[place]),
                   (size_t)previous[place]))
      return false;
    if (next[place] >= 0 &&
        !heap_push(work, find_merge(tokenizer, symbols[place], symbols[next[place]]), place))
      return false;
  }
  for (size_t i = 0; i < *count; i++)
    if (symbols[i] >= 0)
      symbols[kept++] = symbols[i];
  *count = kept;
  return true;
}

/* Symbols before any merge, where words are bytes. */
static size_t byte_symbols(const struct gd_tokenizer *tokenizer, struct gd_tokenizer_work *work,
                           const char *text, size_t length) {
  size_t count = 0;
  bool pending = false;
  for (size_t i = 0; i < length; i++) {
    int32_t id = tokenizer->byte_ids[(unsigned char)text[i]];
    if (id >= 0) {
      if (pending)
        work->symbols[count++] = tokenizer->unknown;
      pending = false;
      work->symbols[count++] = id;
    } else if (tokenizer->unknown >= 0) {
      if (pending && !tokenizer->fuse_unknown)
        work->symbols[count++] = tokenizer->unknown;
      pending = true;
    }
  }
  if (pending)
    work->symbols[count++] = tokenizer->unknown;
  return count;
}

/* The character with the model's prefix and suffix. */
static struct gd_text with_affixes(const struct gd_tokenizer *tokenizer,
                                   struct gd_tokenizer_work *work, struct gd_text character,
                                   bool is_first, bool is_last) {
  bool prefix = !is_first && tokenizer->prefix.length > 0;
  bool suffix = is_last && tokenizer->suffix.length > 0;
  if (!prefix && !suffix)
    return character;
  work->word.length = 0;
  if (prefix)
    gd_strbuf_append_bytes(&work->word, tokenizer->prefix.text, tokenizer->prefix.length);
  gd_strbuf_append_bytes(&work->word, character.text, character.length);
  if (suffix)
    gd_strbuf_append_bytes(&work->word, tokenizer->suffix.text, tokenizer->suffix.length);
  return (struct gd_text){work->word.text, work->word.length};
}

static bool has_all_bytes(const struct gd_tokenizer *tokenizer, struct gd_text text) {
  for (size_t i = 0; i < text.length; i++)
    if (tokenizer->byte_ids[(unsigned char)text.text[i]] < 0)
      return false;
  return true;
}

/* The same for characters. An unknown one waits for the next known one, as in the library, so that
   bytes of a later one may come before it. */
static enum gd_status character_symbols(const struct gd_tokenizer *tokenizer,
                                        struct gd_tokenizer_work *work, const char *text,
                                        size_t length, size_t *symbols) {
  size_t count = 0, bytes;
  bool pending = false;
  for (size_t at = 0; at < length; at += bytes) {
    (void)gd_unicode_decode(text + at, &bytes);
    struct gd_text piece = with_affixes(tokenizer, work, (struct gd_text){text + at, bytes},
                                        at == 0, at + bytes == length);
    if (work->word.failed)
      return nomem(work);
    int32_t id = gd_token_map_find(&tokenizer->vocabulary, piece.text, piece.length);
    size_t most = count + piece.length + 2;
    if (most > work->symbols_room && !reserve(&work->symbols, &work->symbols_room, most))
      return nomem(work);
    if (id >= 0) {
      if (pending)
        work->symbols[count++] = tokenizer->unknown;
      pending = false;
      work->symbols[count++] = id;
    } else if (tokenizer->byte_fallback && has_all_bytes(tokenizer, piece)) {
      for (size_t i = 0; i < piece.length; i++)
        work->symbols[count++] = tokenizer->byte_ids[(unsigned char)piece.text[i]];
    } else if (tokenizer->unknown_named) {
      if (tokenizer->unknown < 0)
        return gd_fail(work->err, GD_BAD_INPUT,
                       "%s: a character has no token, and unk_token is not in the vocabulary",
                       tokenizer->label);
      if (pending && !tokenizer->fuse_unknown)
        work->symbols[count++] = tokenizer->unknown;
      pending = true;
    }
  }
  if (pending)
    work->symbols[count++] = tokenizer->unknown;
  *symbols = count;
  return GD_OK;
}

/* Merges a word without the lookup of the whole word (ignore_merges). */
static enum gd_status bpe_merge(const struct gd_tokenizer *tokenizer,
                                struct gd_tokenizer_work *work, const char *text, size_t length) {
  uint64_t hash = 0;
  size_t count;
  bool cached = length <= CACHED_BYTES;
  if (cached) {
    hash = hash_bytes(text, length);
    const struct gd_word_slot *slot = cache_slot(&work->cache, text, length, hash);
    if (slot->length)
      return put(work, work->cache.ids + slot->ids, slot->count);
  }
  if (!reserve(&work->symbols, &work->symbols_room, length + 2))
    return nomem(work);
  if (tokenizer->bytes)
    count = byte_symbols(tokenizer, work, text, length);
  else
    GD_TRY(character_symbols(tokenizer, work, text, length, &count));
  if (tokenizer->n_merge_slots == 0)
    ;
  else if (count <= SHORT_WORD)
    count = merge_short(tokenizer, work->symbols, count);
  else if (!merge_long(tokenizer, work, &count))
    return nomem(work);
  if (cached)
    cache_add(&work->cache, text, length, hash, work->symbols, count);
  return put(work, work->symbols, count);
}

static const char meta_space[] = "\xe2\x96\x81"; /* U+2581 */
enum { META_SPACE = sizeof meta_space - 1 };

static bool is_space_at(const char *text, size_t length, size_t at) {
  return length - at >= META_SPACE && memcmp(text + at, meta_space, META_SPACE) == 0;
}

/* Texts without a pre-tokenizer are one word. Where no merge crosses the edge before U+2581, the
   pieces between such edges are merged by themselves with the same result. */
static enum gd_status bpe_pieces(const struct gd_tokenizer *tokenizer,
                                 struct gd_tokenizer_work *work, const char *text, size_t length) {
  size_t start = 0, bytes;
  bool after_space = true;
  for (size_t at = 0; at < length; at += bytes) {
    bool space = is_space_at(text, length, at);
    if (space && !after_space) {
      GD_TRY(bpe_merge(tokenizer, work, text + start, at - start));
      start = at;
    }
    after_space = space;
    (void)gd_unicode_decode(text + at, &bytes);
  }
  return bpe_merge(tokenizer, work, text + start, length - start);
}

static enum gd_status bpe_word(const struct gd_tokenizer *tokenizer, struct gd_tokenizer_work *work,
                               const char *text, size_t length) {
  if (tokenizer->ignore_merges) {
    int32_t id = gd_token_map_find(
        tokenizer->bytes ? &tokenizer->byte_words : &tokenizer->vocabulary, text, length);
    if (id >= 0)
      return put(work, &id, 1);
  }
  if (tokenizer->cut_at_space)
    return bpe_pieces(tokenizer, work, text, length);
  return bpe_merge(tokenizer, work, text, length);
}

/* --- WordPiece ----------------------------------------------------------------------------- */

static enum gd_status unknown_word(const struct gd_tokenizer *tokenizer,
                                   struct gd_tokenizer_work *work) {
  if (tokenizer->unknown < 0)
    return gd_fail(work->err, GD_BAD_INPUT,
                   "%s: a word has no tokens, and unk_token is not in the vocabulary",
                   tokenizer->label);
  return put(work, &tokenizer->unknown, 1);
}

static size_t characters(const char *text, size_t length) {
  size_t count = 0;
  for (size_t i = 0; i < length; i++)
    count += ((unsigned char)text[i] & 0xc0u) != 0x80u;
  return count;
}

/* The longest piece of the vocabulary again and again; a word that ends otherwise is unknown. */
static enum gd_status wordpiece(const struct gd_tokenizer *tokenizer,
                                struct gd_tokenizer_work *work, const char *text, size_t length) {
  size_t start = 0, count = 0, affix = tokenizer->prefix.length;
  uint64_t hash = 0;
  bool cached = length <= CACHED_BYTES;
  if (cached) {
    hash = hash_bytes(text, length);
    const struct gd_word_slot *slot = cache_slot(&work->cache, text, length, hash);
    if (slot->length)
      return put(work, work->cache.ids + slot->ids, slot->count);
  }
  if ((int64_t)characters(text, length) > tokenizer->most_characters)
    return unknown_word(tokenizer, work);
  if (!reserve(&work->symbols, &work->symbols_room, length + 1))
    return nomem(work);
  work->word.length = 0;
  gd_strbuf_append_bytes(&work->word, tokenizer->prefix.text, affix);
  gd_strbuf_append_bytes(&work->word, text, length);
  if (work->word.failed)
    return nomem(work);
  while (start < length) {
    size_t end = length - start > tokenizer->longest ? start + tokenizer->longest : length;
    int32_t id = -1;
    while (end < length && ((unsigned char)text[end] & 0xc0u) == 0x80u)
      end--;
    /* The prefix stands before the piece in the buffer: it is moved along. */
    if (start > 0)
      memcpy(work->word.text + start, tokenizer->prefix.text, affix);
    for (; end > start; end -= gd_unicode_last(text + start, end - start)) {
      id = gd_token_map_find(&tokenizer->vocabulary, work->word.text + (start > 0 ? start : affix),
                             end - start + (start > 0 ? affix : 0));
      if (id >= 0)
        break;
    }
    if (id < 0)
      return unknown_word(tokenizer, work);
    work->symbols[count++] = id;
    start = end;
  }
  if (cached)
    cache_add(&work->cache, text, length, hash, work->symbols, count);
  return put(work, work->symbols, count);
}

enum gd_status gd_tokenizer_word(const struct gd_tokenizer *tokenizer,
                                 struct gd_tokenizer_work *work, const char *text, size_t length) {
  if (length == 0)
    return GD_OK;
  if (!work->cache.slots && !cache_open(&work->cache))
    return nomem(work);
  return tokenizer->wordpiece ? wordpiece(tokenizer, work, text, length)
                              : bpe_word(tokenizer, work, text, length);
}

/* --- tables -------------------------------------------------------------------------------- */

uint32_t gd_byte_character(unsigned char byte) {
  if ((byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad))
    return byte;
  if (byte <= ' ')
    return 256u + byte;
  return byte == 0xad ? 256u + 67 : 256u + 33 + (byte - 127u);
}

int gd_character_byte(uint32_t point) {
  if (point < 256)
    return gd_byte_character((unsigned char)point) == point ? (int)point : -1;
  if (point <= 256 + 32)
    return (int)(point - 256);
  if (point <= 256 + 66)
    return (int)(point - 256 - 33 + 127);
  return point == 256 + 67 ? 0xad : -1;
}

/* A token's characters as the bytes that they stand for; false: some stand for none. */
static bool token_bytes(struct gd_text token, struct gd_strbuf *out) {
  out->length = 0;
  for (size_t at = 0, size; at < token.length; at += size) {
    int byte = gd_character_byte(gd_unicode_decode(token.text + at, &size));
    char one = (char)byte;
    if (byte < 0)
      return false;
    gd_strbuf_append_bytes(out, &one, 1);
  }
  return true;
}

static enum gd_status add_byte_words(struct gd_tokenizer *tokenizer, struct gd_error *err) {
  struct gd_strbuf bytes = {0};
  bool fine = true;
  for (uint32_t i = 0; i < tokenizer->vocabulary.n_entries && fine; i++) {
    const struct gd_token_entry *entry = &tokenizer->vocabulary.entries[i];
    if (!token_bytes(entry->text, &bytes) || bytes.length == 0)
      continue;
    char *copy = gd_arena_alloc(&tokenizer->arena, bytes.length, 1);
    fine = copy != NULL && !bytes.failed;
    if (fine) {
      memcpy(copy, bytes.text, bytes.length);
      fine =
          gd_token_map_add(&tokenizer->byte_words, (struct gd_text){copy, bytes.length}, entry->id);
    }
  }
  gd_strbuf_deinit(&bytes);
  return fine ? GD_OK : gd_nomem(err, "while reading %s", tokenizer->label);
}

/* U+2581 has a token, and no merge joins what ends in another character to what begins with it. */
static bool may_cut_at_space(const struct gd_tokenizer *tokenizer) {
  if (gd_token_map_find(&tokenizer->vocabulary, meta_space, META_SPACE) < 0 ||
      tokenizer->prefix.length > 0 || tokenizer->suffix.length > 0)
    return false;
  for (uint32_t i = 0; i < tokenizer->n_merge_slots; i++) {
    const struct gd_merge *merge = &tokenizer->merges[i];
    if (merge->left < 0)
      continue;
    struct gd_text left = tokenizer->tokens[merge->left], right = tokenizer->tokens[merge->right];
    if (is_space_at(right.text, right.length, 0) &&
        !(left.length >= META_SPACE &&
          is_space_at(left.text, left.length, left.length - META_SPACE)))
      return false;
  }
  return true;
}

enum gd_status gd_tokenizer_finish_model(struct gd_tokenizer *tokenizer, struct gd_error *err) {
  for (uint32_t i = 0; i < tokenizer->vocabulary.n_entries; i++)
    if (tokenizer->vocabulary.entries[i].text.length > tokenizer->longest)
      tokenizer->longest = tokenizer->vocabulary.entries[i].text.length;
  for (int i = 0; i < 256; i++) {
    char name[8];
    size_t length = gd_unicode_encode(gd_byte_character((unsigned char)i), name);
    if (!tokenizer->bytes) {
      static const char digits[] = "0123456789ABCDEF";
      memcpy(name, "<0x00>", 6);
      name[3] = digits[i >> 4];
      name[4] = digits[i & 15];
      length = 6;
    }
    tokenizer->byte_ids[i] = gd_token_map_find(&tokenizer->vocabulary, name, length);
  }
  tokenizer->cut_at_space =
      !tokenizer->bytes && !tokenizer->wordpiece && may_cut_at_space(tokenizer);
  if (tokenizer->bytes && tokenizer->ignore_merges)
    return add_byte_words(tokenizer, err);
  return GD_OK;
}
