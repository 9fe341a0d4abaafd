//! The safetensors files of a folder, one or many, read tensor by tensor.
//!
//! The format is a length, a JSON directory and the data; reading the directory here rather than
//! with the format's own library allows positional reads, where the library wants the whole file in
//! memory or mapped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{missing, read_json};
use crate::checkpoint::{Checkpoint, Dtype, TensorInfo};
use crate::config::ModelConfig;
use crate::error::ModelError;
use crate::gguf_model::{LAYER_PARTS, is_llama_tensor};
use crate::source::{FileSource, ReadAt};

/// No real directory comes near.
const MAX_HEADER: u64 = 100 << 20;

/// All tensors of a folder, under GGUF's names.
pub(crate) struct Folder {
    files: Vec<(PathBuf, FileSource)>,
    tensors: BTreeMap<String, (usize, TensorInfo)>,
}

impl Folder {
    pub(crate) fn open(folder: &Path, config: &ModelConfig) -> Result<Self, ModelError> {
        let mut all = Self { files: Vec::new(), tensors: BTreeMap::new() };
        for path in files_of(folder)? {
            let (source, directory) = read_directory(&path)?;
            for (name, info) in directory {
                let Some(name) = canonical(&name, config)? else { continue };
                if all.tensors.insert(name.clone(), (all.files.len(), info)).is_some() {
                    let problem = format!("tensor `{name}` is there twice");
                    return Err(ModelError::Safetensors { path, problem });
                }
            }
            all.files.push((path, source));
        }
        Ok(all)
    }
}

impl Checkpoint for Folder {
    fn shape(&self, name: &str) -> Option<(Dtype, Vec<usize>)> {
        self.tensors.get(name).map(|(_, info)| (info.dtype, info.shape.clone()))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, ModelError> {
        let (file, info) =
            self.tensors.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        let (path, source) = &self.files[*file];
        let mut bytes = vec![0; info.n_bytes as usize];
        source
            .read_exact_at(&mut bytes, info.offset)
            .map_err(|source| ModelError::Io { path: path.clone(), source })?;
        Ok(bytes)
    }

    fn half_split_rope(&self) -> bool {
        true
    }
}

/// The one file, or those that the index names.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let single = folder.join("model.safetensors");
    let index_path = folder.join("model.safetensors.index.json");
    let Some(index) = read_json(&index_path)? else {
        return if single.exists() { Ok(vec![single]) } else { Err(missing(&single)) };
    };
    let bad = |problem: String| ModelError::Json { path: index_path.clone(), problem };
    let map =
        index["weight_map"].as_object().ok_or_else(|| bad("`weight_map` is missing".to_owned()))?;
    let mut names = BTreeSet::new();
    for file in map.values() {
        let name = file.as_str().unwrap_or_default();
        // A file beside the index, nowhere else.
        if name.is_empty() || Path::new(name).components().count() != 1 || name.contains("..") {
            return Err(bad(format!("`weight_map` names the file {file}")));
        }
        names.insert(name);
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

fn read_directory(path: &Path) -> Result<(FileSource, Vec<(String, TensorInfo)>), ModelError> {
    let io = |source| ModelError::Io { path: path.to_owned(), source };
    let bad = |problem: String| ModelError::Safetensors { path: path.to_owned(), problem };
    let source = FileSource::open(path).map_err(io)?;
    let mut length = [0; 8];
    if source.size() < 8 {
        return Err(bad(format!("{} bytes are too few for a header", source.size())));
    }
    source.read_exact_at(&mut length, 0).map_err(io)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER || length > source.size() - 8 {
        return Err(bad(format!("a header of {length} bytes does not fit the file")));
    }
    let mut header = vec![0; length as usize];
    source.read_exact_at(&mut header, 8).map_err(io)?;
    let header: Value = serde_json::from_slice(&header).map_err(|e| bad(format!("header: {e}")))?;
    let header = header.as_object().ok_or_else(|| bad("the header is no object".into()))?;
    let data = 8 + length;
    let mut tensors = Vec::with_capacity(header.len());
    for (name, entry) in header.iter().filter(|(name, _)| *name != "__metadata__") {
        let info = tensor_info(entry, data, source.size())
            .map_err(|problem| bad(format!("tensor `{name}`: {problem}")))?;
        tensors.push((name.clone(), info));
    }
    Ok((source, tensors))
}

fn tensor_info(entry: &Value, data: u64, size: u64) -> Result<TensorInfo, String> {
    let dtype = match entry["dtype"].as_str() {
        Some("F32") => Dtype::F32,
        Some("F16") => Dtype::F16,
        Some("BF16") => Dtype::Bf16,
        _ => return Err(format!("type {} is not supported, only F32, F16, BF16", entry["dtype"])),
    };
    let numbers = |key: &str| -> Result<Vec<u64>, String> {
        let list = entry[key].as_array().ok_or_else(|| format!("`{key}` is missing"))?;
        list.iter().map(|v| v.as_u64().ok_or_else(|| format!("`{key}` holds {v}"))).collect()
    };
    let dims = numbers("shape")?;
    let n_bytes = dims
        .iter()
        .try_fold(dtype.block_bytes() as u64, |n, &d| n.checked_mul(d))
        .ok_or("its size overflows")?;
    let &[begin, end] = numbers("data_offsets")?.as_slice() else {
        return Err("`data_offsets` are not two".into());
    };
    if begin > end || end - begin != n_bytes {
        return Err(format!("offsets {begin}..{end} do not hold its {n_bytes} bytes"));
    }
    if end > size - data {
        return Err(format!("its data ends at {end}, the file's at {}", size - data));
    }
    let shape = dims.into_iter().map(|d| d as usize).collect();
    Ok(TensorInfo { dtype, shape, offset: data + begin, n_bytes })
}

/// GGUF's name of a tensor; `None` for one that is rightly ignored.
fn canonical(name: &str, config: &ModelConfig) -> Result<Option<String>, ModelError> {
    let known = match name {
        "model.embed_tokens.weight" => Some("token_embd.weight".to_owned()),
        "model.norm.weight" => Some("output_norm.weight".to_owned()),
        // Some files of tied models hold the head all the same.
        "lm_head.weight" if config.tied_head => return Ok(None),
        "lm_head.weight" => Some("output.weight".to_owned()),
        // Frequencies that older versions saved; the configuration gives them too.
        _ if name.ends_with("rotary_emb.inv_freq") => return Ok(None),
        _ => layer_tensor(name),
    };
    match known.filter(|k| is_llama_tensor(k, config.n_layers)) {
        Some(known) => Ok(Some(known)),
        None => Err(ModelError::Unsupported(format!("tensor `{name}` in a Llama model"))),
    }
}

fn layer_tensor(name: &str) -> Option<String> {
    /// Hugging Face's names, in the order of [`LAYER_PARTS`].
    const PARTS: [&str; 9] = [
        "input_layernorm",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "post_attention_layernorm",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    ];
    let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let part = part.strip_suffix(".weight")?;
    let i = PARTS.iter().position(|p| *p == part)?;
    Some(format!("blk.{layer}.{}.weight", LAYER_PARTS[i]))
}
