//! Predicts a list of images on all ranks. The list is divided into chunks, each with the size of a batch. In each
//! round every rank predicts a chunk, and rank 0 appends the results in list order. So the output does not depend on
//! the number of ranks, and a stopped prediction continues with the first missing chunk.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use backend::Backend;
use base::screen;
use comm::Comm;
use engine::Graph;
use loaders::lock_file::{LockError, LockFile};
use loaders::record::masked_crc32c;
use loaders::{Dataset, LabelKind, Split, folder_of, on_threads, overwrite};

use super::image_reader::{ImageReader, ReadingRequest};
use super::model::graph;
use super::pictures::{Picture, images as images_of, pictures};
use super::predict::{ClassSelection, NPY, features};
use super::prediction_file::{Journal, LONGEST_OUTPUT_NAME, Row, TableFormat, TableShape};
use super::request::ModelRequest;
use super::score::{check_images, divide_cores, no_split, open_graph};
use crate::device::{Device, DeviceChoice, RequestedThreads, Resources};
use crate::error::Error;
use crate::train::agree::{Session, gpus};
use crate::train::observe::watch::{self, Activity, Watch};

#[derive(Clone, Debug)]
pub struct ManyRequest {
    pub model: ModelRequest,
    /// Images, folders, patterns and `-`, or a single folder with a data set.
    pub images: Vec<PathBuf>,
    /// Split to predict in a data set. `None` selects the test split, or the validation split if the test split is
    /// missing or empty.
    pub split: Option<String>,
    pub reading: ReadingRequest,
    pub wanted: ClassSelection,
    /// True if rows also have the network's raw outputs.
    pub logits: bool,
    /// The table to write: `.csv`, `.jsonl` or `.parquet`.
    pub out: PathBuf,
    /// A `.npy` file for the last layer's inputs.
    pub features: Option<PathBuf>,
    /// Images per pass. Does not depend on the number of ranks.
    pub batch: usize,
    pub device: DeviceChoice,
    pub share_gpu: bool,
    pub threads: Option<usize>,
    pub loader_threads: Option<usize>,
    pub stall: watch::Limits,
}

impl ManyRequest {
    /// Returns the options that must be equal on all ranks.
    fn compared(&self) -> String {
        let Self { split, reading, wanted, logits, batch, share_gpu, model, features, .. } = self;
        format!(
            "trireme predict\n--split {split:?}\n{:?} {:?}\n--top, --threshold {wanted:?}\n--logits {logits}\n--batch {batch}\n\
             --share-gpu {share_gpu}\n--best {} --ema {}\n--features {}\n--pages {}\n{:?}",
            reading.test_time,
            reading.layout,
            model.best,
            model.ema,
            features.is_some(),
            reading.by_page,
            reading.limits
        )
    }
}

/// Summary for the user. Only on rank 0.
#[derive(Debug)]
pub struct ManySummary {
    pub images: u64,
    /// Number of images that an earlier, stopped prediction has already predicted.
    pub kept: u64,
    /// Error messages for images that could not be used.
    pub failures: Vec<String>,
}

/// The images in their order.
enum ImageList {
    Files(Vec<Picture>),
    Records(Split),
}

impl ImageList {
    fn len(&self) -> u64 {
        match self {
            Self::Files(files) => files.len() as u64,
            Self::Records(split) => split.len(),
        }
    }

    /// Returns the files. Empty for a data set.
    fn files(&self) -> &[Picture] {
        match self {
            Self::Files(files) => files,
            Self::Records(_) => &[],
        }
    }

    /// Returns a text that is equal for equal lists: the paths of the files, or the split's name, folder and shards.
    fn identity(&self) -> String {
        match self {
            Self::Files(files) => files.iter().map(|file| format!("{file:?}\n")).collect(),
            Self::Records(split) => format!("{} {:?} {:?}", split.name(), split.dir(), split.shards()),
        }
    }

    /// Returns a row without predictions.
    fn row(&self, id: u64) -> Row {
        match self {
            Self::Files(files) => Row { image: files[id as usize].name(), ..Row::default() },
            Self::Records(split) => Row { image: format!("{}#{id}", split.name()), ..Row::default() },
        }
    }

    /// Reads and transforms an image for each view. For a record, also adds its file name to `row`.
    fn prepare(&self, id: u64, reader: &ImageReader, row: &mut Row, views: &mut [&mut [f32]]) -> Result<(), String> {
        let mut copy = Vec::new();
        let example = match self {
            Self::Files(_) => None,
            Self::Records(split) => {
                let (example, _) = split.record(id, &mut copy).map_err(|e| e.to_string())?;
                row.file = Some(example.filename.to_string()).filter(|file| !file.is_empty());
                Some((split, example))
            }
        };
        for ((view, _), out) in reader.views.iter().zip(views) {
            match (self, &example) {
                (_, Some((split, example))) => {
                    let made = reader.transform_record(example, view, out);
                    made.map_err(|fault| split.fault(id, fault).to_string())?;
                }
                (Self::Files(files), None) => {
                    reader.transform(&files[id as usize], view, out).map_err(|e| e.to_string())?;
                }
                (Self::Records(_), None) => {}
            }
        }
        Ok(())
    }
}

/// Predicts all images with all ranks together. `list` has the names for `-`, on rank 0.
pub fn predict<D: Device>(
    device: &D,
    request: &ManyRequest,
    list: &mut dyn BufRead,
) -> Result<Option<ManySummary>, Error> {
    let comm = Comm::launch();
    let watch = Watch::start(&comm, request.stall);
    watch.stepped();
    watch.set_activity(Activity::Starting);
    let mut session = Session::join(comm, watch)?;
    let started = session.same_start((D::NAME, device.why_chosen()), &request.compared());
    let result = started.and_then(|()| predict_on(device, &mut session, request, list));
    // Writing a large table takes long. The watchdog has ended by then, and the other ranks are free.
    session.conclude(result)?.map(|rows| rows.write(request)).transpose()
}

/// All predictions, which are not in a table yet. Only on rank 0.
struct Predicted {
    journal: Journal,
    format: TableFormat,
    shape: TableShape,
    /// Number of features per image, if there is a file for them.
    columns: Option<usize>,
    images: u64,
    kept: u64,
}

impl Predicted {
    /// Writes the table and the features, and removes the journal.
    fn write(self, request: &ManyRequest) -> Result<ManySummary, Error> {
        let Self { journal, format, shape, columns, images, kept } = self;
        let features = request.features.as_deref().zip(columns);
        let failures = journal.finish(&request.out, format, &shape, features)?;
        Ok(ManySummary { images, kept, failures })
    }
}

/// Returns the images to predict, and a note if there is something to say about a data set's bands. Rank 0 expands the
/// names and broadcasts them, because only rank 0 has standard input.
fn list_images(
    session: &Session,
    request: &ManyRequest,
    reader: &ImageReader,
    list: &mut dyn BufRead,
) -> Result<(ImageList, Option<String>), Error> {
    let folder = request.images.first().filter(|_| request.images.len() == 1);
    let is_data = |folder: &PathBuf| folder.join(loaders::dataset::MANIFEST).exists();
    // the folder may be missing on another node, whose rank then says so
    let is_data = session.is_root().then(|| folder.is_some_and(is_data));
    let is_data = session.comm.broadcast("kind of images", is_data.as_ref())?;
    if let Some(folder) = folder.filter(|_| is_data) {
        let (split, note) = session.agree(open_split(request, folder, reader))?;
        return Ok((ImageList::Records(split), note));
    }
    if request.split.is_some() {
        let wrong = "--split applies only to the folder of a data set; leave it out";
        return session.agree(Err(Error::Usage(wrong.into())));
    }
    // Listing a large folder, or the pages of its TIFFs, can take minutes. The watchdog allows more time for work.
    session.watch.set_activity(Activity::Starting);
    let found = match session.is_root() {
        true => {
            let files = pictures(&request.images, reader.is_raw(), list);
            files.map(|files| Some(images_of(files, request.reading.by_page, &request.reading.limits)))
        }
        false => Ok(None),
    };
    let found = session.agree(found)?;
    let bytes = |picture: &Picture| {
        let path = std::os::unix::ffi::OsStrExt::as_bytes(picture.path.as_os_str()).to_vec();
        (path, picture.page)
    };
    let named: Option<Vec<(Vec<u8>, Option<u32>)>> = found.map(|found| found.iter().map(bytes).collect());
    let named: Vec<(Vec<u8>, Option<u32>)> = session.comm.broadcast("names of images", named.as_ref())?;
    let picture = |(path, page)| Picture {
        path: PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(path)),
        page,
    };
    Ok((ImageList::Files(named.into_iter().map(picture).collect()), None))
}

/// Opens a data set's split and checks its images. May return a note about the bands.
fn open_split(request: &ManyRequest, folder: &Path, reader: &ImageReader) -> Result<(Split, Option<String>), Error> {
    let dataset = Dataset::open(folder)?;
    let name = recipe::evaluation_split(request.split.as_deref(), &dataset.manifest)?;
    let name = name.ok_or_else(|| no_split(folder))?;
    let split = dataset.split(&name)?;
    let note = check_images(&reader.model, &request.model.file, &dataset.manifest, &split, folder)?;
    Ok((split, note))
}

/// Returns a fingerprint of all inputs to the rows: version, options, device, list of images, model. A
/// stopped prediction resumes only if its journal has the same fingerprint.
fn identity(request: &ManyRequest, device: &str, reader: &ImageReader, images: &ImageList) -> String {
    let model = &reader.model;
    let (version, options) = (env!("CARGO_PKG_VERSION"), request.compared());
    let mut text = format!("{version}\n{options}\n{device}\n{}\n", images.identity());
    text += &format!("{} {:?} {:?} {:?}\n", model.network, model.classes, model.preprocess, model.targets);
    for (_, _, values) in model.layers.iter().flat_map(|layer| &layer.tensors) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        text += &format!("{:08x} ", masked_crc32c(&bytes));
    }
    format!("{:08x}-{}", masked_crc32c(text.as_bytes()), text.len())
}

fn predict_on<D: Device>(
    device: &D,
    session: &mut Session,
    request: &ManyRequest,
    list: &mut dyn BufRead,
) -> Result<Option<Predicted>, Error> {
    session.watch.set_activity(Activity::Reading);
    let format = session.agree(TableFormat::of(&request.out))?;
    let locks = session.agree(if session.is_root() { lock_outputs(request, format) } else { Ok(Vec::new()) })?;
    let (reader, mut notes) = session.agree(ImageReader::open(&request.model, &request.reading))?;
    session.agree(request.wanted.check(reader.model.label_kind(), &request.model.file))?;
    let (images, note) = list_images(session, request, &reader, list)?;
    notes.extend(note);
    let identity = identity(request, D::NAME, &reader, &images);
    session.same("the model or the images", &identity, "start all ranks with the same files and options")?;
    session.watch.set_activity(Activity::Starting);
    let cores = divide_cores(device, session)?;
    let requested = RequestedThreads { compute: request.threads, loader: request.loader_threads };
    let resources = Resources::new::<D>(cores, requested, false);
    // a larger batch would be planned for images that do not exist
    let batch = request.batch.min(images.len().max(1) as usize);
    let planned = |backend| graph(&reader.model, backend, batch, &[]);
    let (graph, gpu) = open_graph(device, session, resources.compute, planned, (request.share_gpu, &notes))?;
    let top = request.wanted.top.unwrap_or(1).min(reader.model.classes.len());
    let shape = TableShape {
        kind: reader.model.label_kind(),
        names: reader.model.classes.clone(),
        top,
        logits: request.logits,
        records: matches!(images, ImageList::Records(_)),
    };
    let mut work = Prediction { request, reader, images, graph, batch, top, loader: resources.loader };
    let columns = request.features.as_ref().map(|_| work.feature_count()).transpose()?;
    let features = request.features.as_deref().zip(columns);
    let (journal, kept) = open_journal(session, request, &work.images, &identity, features, batch as u64, locks)?;
    session.watch.set_ready(true);
    let predicted = work.run(session, journal, kept);
    let predicted = predicted.map_err(|error| gpus::located(device, error, &session.world.host, gpu.as_ref()))?;
    let journal = session.agree(Ok(predicted))?;
    Ok(journal.map(|journal| Predicted { journal, format, shape, columns, images: work.images.len(), kept }))
}

/// Checks that the table and the features may be written, and locks them against other predictions to the same files.
/// Rank 0 calls this before it reads the model and the images, which can take minutes.
fn lock_outputs(request: &ManyRequest, format: TableFormat) -> Result<Vec<LockFile>, Error> {
    let inputs: Vec<&Path> = request.images.iter().chain([&request.model.file]).map(PathBuf::as_path).collect();
    let table = (request.out.as_path(), "--out", format.content());
    let features = request.features.as_deref().map(|path| (path, "--features", &NPY));
    // the same file may be named in two ways, such as t.csv and ./t.csv
    let whole = |path: &Path| Some(folder_of(path).canonicalize().ok()?.join(path.file_name()?));
    if request.features.as_deref().and_then(whole).is_some_and(|features| Some(features) == whole(&request.out)) {
        return Err(Error::Usage(format!(
            "--out and --features are the same file {}; choose another name for one of them",
            request.out.display()
        )));
    }
    let mut locks = Vec::new();
    for (path, option, content) in [table].into_iter().chain(features) {
        if path.file_name().is_some_and(|name| name.len() > LONGEST_OUTPUT_NAME) {
            return Err(Error::Usage(format!(
                "{option} {}: the file name is longer than {LONGEST_OUTPUT_NAME} bytes; choose a shorter name",
                path.display()
            )));
        }
        overwrite::check(path, content, &inputs).map_err(Error::Usage)?;
        locks.push(LockFile::beside(path).map_err(|error| match error {
            LockError::File { path, source } => Error::File { action: "lock", path, source },
            LockError::InUse { .. } => Error::Usage(error.message(path, option)),
        })?);
    }
    Ok(locks)
}

/// Opens the journal on rank 0 and returns the number of rows that are already in it, on all ranks.
fn open_journal(
    session: &Session,
    request: &ManyRequest,
    images: &ImageList,
    identity: &str,
    features: Option<(&Path, usize)>,
    chunk: u64,
    locks: Vec<LockFile>,
) -> Result<(Option<Journal>, u64), Error> {
    let open = || {
        if let Some((path, _)) = features {
            // the images may be arrays, too
            let images: Vec<&Path> = images.files().iter().map(|file| file.path.as_path()).collect();
            overwrite::check(path, &NPY, &images).map_err(Error::Usage)?;
        }
        let (journal, kept) = Journal::open(&request.out, features, identity, chunk)?;
        Ok((journal.with_locks(locks), kept))
    };
    let opened = if session.is_root() { open().map(Some) } else { Ok(None) };
    let opened = session.agree(opened)?;
    let (journal, kept) = opened.map_or((None, None), |(journal, kept)| (Some(journal), Some(kept)));
    let kept = session.comm.broadcast("rows of an earlier prediction", kept.as_ref())?;
    Ok((journal, kept))
}

struct Prediction<'a, B: Backend> {
    request: &'a ManyRequest,
    reader: ImageReader,
    images: ImageList,
    graph: Graph<B>,
    batch: usize,
    top: usize,
    /// Threads that read images.
    loader: usize,
}

impl<B: Backend> Prediction<'_, B> {
    fn feature_count(&mut self) -> Result<usize, Error> {
        let input = vec![0.0; self.batch * self.reader.views[0].0.output().values()];
        self.graph.scores(&input, self.batch)?;
        Ok(features(&self.graph)?.len() / self.batch)
    }

    /// Predicts all chunks after the first `kept` images. Rank 0 passes and gets back the journal.
    fn run(&mut self, session: &Session, mut journal: Option<Journal>, kept: u64) -> Result<Option<Journal>, Error> {
        let (ranks, rank) = (session.world.size as u64, session.world.rank as u64);
        let chunk = self.batch as u64;
        let (first, chunks) = (kept / chunk, self.images.len().div_ceil(chunk));
        for round in 0..(chunks - first).div_ceil(ranks) {
            let own = first + round * ranks + rank;
            session.watch.set_activity(Activity::ScoringData { after: own });
            let (lines, features) = if own < chunks { self.chunk(session, own)? } else { Default::default() };
            session.watch.set_activity(Activity::ScoringData { after: own + 1 });
            let all = session
                .comm
                .run("gathering of predictions", |world| Ok(world.gather(&lines)?.zip(world.gather(&features)?)))?;
            if let (Some(journal), Some((lines, features))) = (&mut journal, all) {
                journal.append(&lines.concat(), &features.concat())?;
            }
        }
        Ok(journal)
    }

    /// Predicts a chunk. Returns a JSON line per row, and the rows' features.
    fn chunk(&mut self, session: &Session, number: u64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let (start, values) = (number * self.batch as u64, self.reader.views[0].0.output().values());
        let ids: Vec<u64> = (start..(start + self.batch as u64).min(self.images.len())).collect();
        // the batch always has its full size, so that an image's result does not depend on the number of images in the
        // chunk
        let mut inputs: Vec<Vec<f32>> = self.reader.views.iter().map(|_| vec![0.0; self.batch * values]).collect();
        let mut rows = self.prepare(&ids, &mut inputs, values);
        session
            .watch
            .set_activity(Activity::Scoring { batch: number, on_device: self.graph.backend().queue().is_some() });
        let mut scores: Vec<f32> = Vec::new();
        // the plain view is computed last, so the features belong to the unmodified images
        for (input, (_, weight)) in inputs.iter().zip(&self.reader.views).rev() {
            let found = self.graph.scores(input, self.batch)?;
            scores.resize(found.len(), 0.0);
            scores.iter_mut().zip(&found).for_each(|(sum, score)| *sum += weight * score);
        }
        self.graph.take_notes().iter().for_each(|note| screen::say(note));
        let classes = self.graph.classes();
        let wanted = ClassSelection { top: self.wanted_top(), ..self.request.wanted };
        for (row, scores) in rows.iter_mut().zip(scores.chunks_exact(classes.max(1))) {
            if row.error.is_some() {
                continue;
            }
            match self.reader.select(scores, wanted) {
                Ok(found) => {
                    row.found = found.into_iter().map(|(class, value)| (class as u32, value)).collect();
                    // JSON has no infinite numbers
                    let known = scores.iter().map(|score| Some(*score).filter(|score| score.is_finite()));
                    row.logits = if self.request.logits { known.collect() } else { Vec::new() };
                }
                Err(what) => row.error = Some(format!("{}: {what}", base::text::printable(&row.image))),
            }
        }
        let mut lines = Vec::new();
        for row in &rows {
            serde_json::to_writer(&mut lines, row)
                .map_err(|e| Error::Failed(format!("cannot encode a row of the output as JSON: {e}")))?;
            lines.push(b'\n');
        }
        Ok((lines, self.features(&rows)?))
    }

    /// Returns the maximum number of classes per row. `None` means no limit.
    fn wanted_top(&self) -> Option<usize> {
        match self.reader.model.label_kind() {
            LabelKind::OneClass => Some(self.top),
            LabelKind::Classes | LabelKind::Numbers => self.request.wanted.top,
        }
    }

    /// Reads and transforms images on multiple threads. Returns a row for each, with an error if the image cannot be
    /// used.
    fn prepare(&self, ids: &[u64], inputs: &mut [Vec<f32>], values: usize) -> Vec<Row> {
        let mut parts: Vec<Vec<&mut [f32]>> = ids.iter().map(|_| Vec::new()).collect();
        for input in inputs {
            parts.iter_mut().zip(input.chunks_exact_mut(values)).for_each(|(part, view)| part.push(view));
        }
        let (images, reader) = (&self.images, &self.reader);
        let rows: Vec<Mutex<Row>> = ids.iter().map(|_| Mutex::default()).collect();
        let work = ids.iter().zip(parts).zip(&rows);
        on_threads(self.loader.min(ids.len()), work, |((id, mut views), place)| {
            let mut row = images.row(*id);
            let prepare = || images.prepare(*id, reader, &mut row, &mut views);
            let prepared = loaders::guarded_with(prepare, |panic| {
                format!("reading the image failed unexpectedly ({panic}); this is a bug in trireme, please report it")
            });
            if let Err(what) = prepared {
                // the network sees zeros instead
                views.iter_mut().for_each(|view| view.fill(0.0));
                row.error = Some(what);
            }
            *place.lock().unwrap_or_else(PoisonError::into_inner) = row;
        });
        rows.into_iter().map(|row| row.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Returns the features from the last pass, with NaN for images that could not be used.
    fn features(&self, rows: &[Row]) -> Result<Vec<u8>, Error> {
        if self.request.features.is_none() {
            return Ok(Vec::new());
        }
        let all = features(&self.graph)?;
        let each = all.len() / self.batch;
        let known = rows.iter().zip(all.chunks_exact(each.max(1)));
        let values =
            known.flat_map(|(row, own)| own.iter().map(|value| if row.error.is_some() { f32::NAN } else { *value }));
        Ok(values.flat_map(f32::to_le_bytes).collect())
    }
}
